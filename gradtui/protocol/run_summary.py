"""The summary of a run as other programs read it: what the file of `--summary` contains.

`json_objects.py` writes and reads it: the names of fields are the keys. Sizes are bytes, times seconds, None is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import INLINED, Number
from gradtui.protocol.summary_changes import Change, Forecast, ForecastError, Freezes, Intervention, Refused, Return
from gradtui.protocol.summary_ending import EndRow, Job, Rank, RunError
from gradtui.protocol.summary_gradients import (
    BadStep,
    GradientNorm,
    JointGradient,
    LossCourse,
    MetricCourse,
    NormCourse,
    ParameterGradient,
    Spike,
)
from gradtui.protocol.summary_memory import (
    Checkpointed,
    DeviceMemory,
    FailedAllocation,
    LivingGraphs,
    PhaseSummary,
    StepMemory,
    StepPeak,
)
from gradtui.protocol.summary_modules import ModuleTable
from gradtui.protocol.summary_time import DeviceLoad, StepTime, Throughput
from gradtui.protocol.vocabulary import UnregisteredModule

SCHEMA = 1
"""Grows when a value gets another meaning. A new field leaves it as it is."""


@dataclass(frozen=True)
class Backward:
    """How far backward runs in a model."""

    stops_at: tuple[str, ...]
    """Paths where backward stops although something with parameters ran before in the same model."""
    never_enters: tuple[str, ...]
    """Paths of the topmost modules with parameters that ran, and that backward never enters."""
    in_words: str | None


@dataclass(frozen=True)
class ElementCounts:
    """Elements of parameters."""

    trainable: int
    frozen: int


@dataclass(frozen=True)
class Model:
    """A model of the run, with its last measurements if it is gone."""

    name: str
    current: bool
    """Whether the run has it now, or had it when it ended."""
    evaluated_only: bool
    part_of: str | None
    parameters: int
    """Elements."""
    trainable: int | None
    """Elements that require a gradient."""
    type: str
    gradient_bytes: int | None
    activation_bytes: int | None
    bucket_bytes: int | None
    measured_step: int | None
    run_under: Mapping[str, ElementCounts] | None
    """By the grad mode under which their modules ran."""
    backward: Backward
    label: str = ""
    """The name, with a number if several models of the run have it."""
    has_trained: bool = False
    """Whether backward has entered it."""
    in_words: str = ""


@dataclass(frozen=True)
class GroupSettings:
    """The settings of a parameter group, by the optimizer's own names."""

    lr: Number
    weight_decay: Number
    further: Mapping[str, Any] = field(metadata=INLINED)
    since_steps: tuple[int, ...]
    """Two steps: the settings are in use since a step from the first to the second."""


@dataclass(frozen=True)
class Optimizer:
    """An optimizer that was made or stepped."""

    groups: int
    freed: bool
    """It no longer exists."""
    sharing: int
    """Number of optimizers that have had this row, one after the other."""
    type: str
    parameters: int
    steps: int
    group_settings: tuple[GroupSettings, ...]


@dataclass(frozen=True)
class Module:
    """A module, with the gradients of all parameters in it, its children's included."""

    path: str
    type: str
    gradient_norm: Number
    gradient_norm_steps: tuple[int, ...] | None
    """The first and the last step of these norms."""
    gradient: JointGradient | None
    saved_bytes: int | None
    """What autograd keeps for backward in its own operations."""
    subtree_saved_bytes: int | None
    """That with the modules within it."""
    forward_seconds: Number
    """Of a step, with the modules that it calls; None where it was not timed, or did not run."""
    own_forward_seconds: Number
    """Without them."""
    backward_seconds: Number
    own_backward_seconds: Number


@dataclass(frozen=True)
class Parameter:
    """A parameter of the models that trained last."""

    path: str
    names: tuple[str, ...]
    """All of its paths, more than one where weights are tied."""
    same_storage: tuple[str, ...]
    """Paths of other parameters over the same memory."""
    shape: tuple[int, ...]
    local_count: int | None
    """Elements that this process holds; None for a tensor that is not spread over several."""
    dtype: str
    bytes: int
    trainable: bool | None
    state: str | None
    """The letter of its state."""
    state_reason: str | None
    gradient_norm: Number
    gradient_norm_step: int | None
    gradient: ParameterGradient | None
    saved_bytes: int | None
    """That of the module that owns it."""


@dataclass(frozen=True)
class Buffer:
    """A tensor of a module that is no parameter."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    persistent: bool
    """Whether `state_dict` contains it."""


@dataclass(frozen=True)
class Finding:
    """Something that a rule says is wrong."""

    rule: str
    level: str
    status: str
    message: str
    why: str
    paths: tuple[str, ...]
    first_step: int | None
    last_step: int | None
    cleared_step: int | None
    """The step after which it was no longer so; None while it is."""
    evidence: Mapping[str, str | int | float | bool | None]
    remedy: str
    command: str | None
    explains: tuple[str, ...]
    file: str | None
    line: int | None

    @property
    def is_confirmed_and_open(self) -> bool:
        """Whether it is sure, and still so when the run ends."""
        return self.status == "confirmed" and self.cleared_step is None


@dataclass(frozen=True)
class PartProblem:
    """A part of gradtui that failed."""

    error: str
    """The newest one."""
    failures: int


@dataclass(frozen=True)
class Cost:
    """The overhead of gradtui. Shares are fractions of 1."""

    us_per_step: Number
    """Microseconds, as the next one."""
    device_us_per_step: Number
    share_of_step: Number
    steps_exempt_from_budget: int
    share_of_other_steps: Number
    budget: Number
    steps_within_budget: int
    share_within_budget: Number
    setup_seconds: Number
    dropped_events: int
    dropped_readings: int
    steps_with_estimated_phases: int


@dataclass(frozen=True)
class RunSummary:
    """A run in figures, while it continues or when it has ended."""

    schema: int
    """1."""
    script: str | None
    """Its name."""
    arguments: tuple[str, ...]
    """Without secrets."""
    exit_code: int | None
    child_cpu_seconds: Number
    seconds: Number
    device: str | None
    ledger: str | None
    """How memory is measured."""
    torch: str | None
    """Its version."""
    steps: int
    """Executed optimizer steps of all optimizers."""
    iterations: int
    """Of the training loop."""
    micro_steps: int
    """Outermost backward calls."""
    skipped_steps: int
    """By a loss scaler."""
    models: tuple[Model, ...]
    optimizers: tuple[Optimizer, ...]
    phases: Mapping[str, PhaseSummary]
    """By the name of the phase."""
    memory: StepMemory
    step_peak: StepPeak | None
    """None while no step was profiled."""
    device_memory: DeviceMemory | None
    checkpointed: tuple[Checkpointed, ...]
    living_graphs: LivingGraphs | None
    gradient_norm: GradientNorm
    losses: tuple[LossCourse, ...]
    gradient_norms: tuple[NormCourse, ...]
    metrics: tuple[MetricCourse, ...]
    """What the script logs."""
    bad_step: BadStep | None
    spikes: tuple[Spike, ...]
    """Of the loss and of the gradient norm, the newest 256."""
    spike_count: int
    """The number of all of them."""
    modules: tuple[Module, ...]
    parameters: tuple[Parameter, ...]
    buffers: tuple[Buffer, ...]
    freezes: Freezes
    interventions: tuple[Intervention, ...]
    forecasts: tuple[Forecast, ...]
    forecast_errors: Mapping[str, ForecastError | None]
    interventions_dropped: int
    """Number of older ones."""
    returns: tuple[Return, ...]
    """The newest ones."""
    return_count: int
    refused: tuple[Refused, ...]
    out_of_memory: tuple[FailedAllocation, ...]
    findings: tuple[Finding, ...]
    problems: Mapping[str, PartProblem]
    unregistered: tuple[UnregisteredModule, ...]
    unregistered_omitted: int
    cost: Cost
    ranks: tuple[Rank, ...]
    report: tuple[str, ...]
    """The run in sentences."""
    step_time: StepTime | None = None
    """None before ten steps, and in files of earlier versions."""
    throughput: Throughput | None = None
    """The same."""
    device_load: DeviceLoad | None = None
    """None where nothing was read while the run trained, and in files of earlier versions."""
    newest_step: int = 0
    """The number of the newest step. Updates without an optimizer count too."""
    steps_by_optimizer: str = ""
    """Who made the steps, in words; empty unless several optimizers step in turns."""
    error: RunError | None = None
    """None where the script has not failed."""
    untrained: tuple[str, ...] = ()
    """Why a run that has ended trained nothing, in sentences."""
    deviations: tuple[str, ...] = ()
    """Where the run left its schedule, and which policies of return have given up, in sentences."""
    checkpoints: tuple[str, ...] = ()
    """What the script's checkpoints hold and lack after unfreezes, in sentences."""
    table: ModuleTable | None = None
    """None in a file that was written while the run continued."""
    changes: tuple[Change, ...] = ()
    """What was done to the run and what came of it, the newest 200, those that were refused and that still wait included."""
    metrics_omitted: int = 0
    """Number of metrics that are not in `metrics`."""
    job: Job | None = None
    """None for a run of one process."""
    ending: tuple[EndRow, ...] = ()
    """The closing lines."""
