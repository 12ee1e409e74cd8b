"""Everything known about a run. Built by `reducer.apply` from events alone; owned by whichever thread drains them."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradtui.protocol.commands import Command, SetTrainable, TrainOnly
from gradtui.protocol.events import (
    CommandApplied,
    CommandRejected,
    DeviceSampled,
    FreezeStateChanged,
    GradientFlowMeasured,
    GradientPathFound,
    GraphsAlive,
    GroupsRead,
    MemoryMeasured,
    NonFiniteFound,
    OptimizersExtended,
    OptimizerStateRead,
    OutOfMemory,
    RunEnded,
    RunStarted,
    SavedBytesMeasured,
    StepMemoryProfiled,
)
from gradtui.protocol.histogram import GradientHistogram
from gradtui.protocol.vocabulary import (
    BufferInfo,
    GradientStats,
    ModelInfo,
    ModuleInfo,
    OptimizerInfo,
    ParameterInfo,
    Phase,
    UnregisteredModule,
)
from gradtui.state.growth import GrowthWatch
from gradtui.state.micro_steps import MicroStepNorms
from gradtui.state.ratio_history import RatioHistory
from gradtui.state.series import RowHistory, Series


@dataclass
class PhaseRecord:
    """What is known of one phase over the whole run."""

    seconds: float = 0.0
    """Host time: where a device computes, what the host took to launch the operations and to wait for them."""
    device_seconds: float = 0.0
    """Device time in the `device_steps` steps that were timed on a device."""
    device_steps: int = 0
    count: int = 0
    last: MemoryMeasured | None = None
    peak: int | None = None
    """Highest total seen in any visit, bytes."""
    peak_models: tuple[int, ...] = ()
    """Numbers of the models that had run in the step of that visit."""
    peak_exact: bool = True
    totals: Series = field(default_factory=Series)
    """Total bytes at the end of the phase, over steps."""


@dataclass
class Turn:
    """One optimizer's step as it was measured last."""

    reach: GradientFlowMeasured
    saved: SavedBytesMeasured | None = None
    number: int = 0
    """How many steps had been measured by then."""


@dataclass
class TreeState:
    """The models of the run and what was last measured of each parameter; every list is aligned with `parameters`."""

    models: tuple[ModelInfo, ...] = ()
    modules: tuple[ModuleInfo, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    buffers: tuple[BufferInfo, ...] = ()
    listing: int | None = 0
    """The number that the probe gave this list: 0 before the first one, None where it gave none."""
    is_sharded: bool = False
    """Whether any of them is spread over processes."""
    states: str = ""
    trainable: str = ""
    reasons: str = ""
    """A letter of `vocabulary.StateReason` per parameter; empty where no cause was seen of any."""
    norms: tuple[float | None, ...] | None = None
    norms_step: int | None = None
    norm_steps: tuple[int | None, ...] | None = None
    """The step of each of `norms`; None where all are of `norms_step`."""
    figures: dict[int, tuple[int, GradientStats]] = field(default_factory=dict)
    """By parameter: the step in which it was looked at last, and what was seen."""
    ratios: RatioHistory = field(default_factory=RatioHistory)
    """How far the steps that were looked at moved each parameter."""
    histograms: dict[int, tuple[int, GradientHistogram]] = field(default_factory=dict)
    """By parameter: the step of the newest histogram of its gradient, and that; of those that were watched last."""
    chains: dict[str, GradientPathFound] = field(default_factory=dict)
    """By path: how the gradient comes to it, of those that were asked for last."""
    optimizer_state: dict[str, OptimizerStateRead] = field(default_factory=dict)
    """By path, likewise: what optimizers keep for it."""
    followed: set[str] = field(default_factory=set)
    """Paths to which the gradient is about to be followed."""
    saved: SavedBytesMeasured | None = None
    """Of each model what was measured last, even if that was in another optimizer's step (see `turns`)."""
    reach: GradientFlowMeasured | None = None
    """Likewise: how far the gradient comes."""
    steps: tuple[int, ...] = ()
    """Per model: the step that `saved` and `reach` are of."""
    evaluated: dict[int, int] = field(default_factory=dict)
    """By number of a model of which no step was measured: after which step it was evaluated last."""
    turns: dict[int, Turn] = field(default_factory=dict)
    """By place of the optimizer, the newest last."""
    measured: int = 0
    """Steps that `turns` has heard of."""
    freezes: FreezeStateChanged | None = None
    """What commands have frozen; None where that is nothing."""
    checkpointed: frozenset[int] = frozenset()
    """Places of the modules that commands have checkpointed."""
    version: int = 0
    """Grows when the structure is replaced."""


@dataclass(frozen=True)
class Regime:
    """So many elements of a model are trainable, or not, and run under one grad mode."""

    grad_mode: str
    """A letter of `vocabulary.GradMode`."""
    trainable: bool
    parameters: int


@dataclass(frozen=True)
class ModelRecord:
    """What was measured of one model, kept when the model is gone. None where it is not known."""

    number: int
    name: str
    type_name: str
    parameters: int
    """Elements."""
    trainable: int | None
    """Elements that require a gradient."""
    step: int | None = None
    """The step that what follows is of."""
    gradient_bytes: int | None = None
    """What `.grad` holds when a step has ended."""
    bucket_bytes: int | None = None
    """What a data-parallel wrapper's buckets hold of gradients besides; it is in the ledger's `other`."""
    activation_bytes: int | None = None
    """What autograd keeps for backward in its modules."""
    regimes: tuple[Regime, ...] = ()
    """Empty while not known."""
    stops: tuple[str, ...] = ()
    """Paths where backward stops."""
    never_entered: tuple[str, ...] = ()
    """Paths of the topmost modules with parameters that ran, and that backward never enters."""
    sentence: str | None = None
    """Those two in words."""
    current: bool = True
    """Among the models of the run now, or when it ended."""
    evaluated_only: bool = False
    """It was called for evaluation, and neither an optimizer owns a parameter of it nor has a gradient reached one."""
    has_trained: bool = False
    """A step of it was measured, in which a gradient reached it."""
    part_of: str | None = None
    """The name of the model that its modules are in now, where it is no model of its own any more."""


@dataclass
class NormSummary:
    """First, last and extreme values of the total gradient norm, of one set of models."""

    since_step: int = 0
    """The step at which the models were found that these norms are of; 0 for the first ones."""
    of_earlier_models: bool = False
    """Other models have been found since: the next norm begins a new summary."""
    replaced_at: int = 0
    """The step at which they were found."""
    first: float | None = None
    first_step: int | None = None
    last: float | None = None
    last_step: int | None = None
    smallest: float | None = None
    smallest_step: int | None = None
    largest: float | None = None
    largest_step: int | None = None
    measured_steps: int = 0
    not_finite_steps: int = 0
    unconfirmed_steps: int = 0
    """Measured steps whose gradients may have changed between the reading and the update."""


@dataclass(frozen=True)
class LogEntry:
    """One line of the events panel."""

    at: float
    step: int
    kind: str
    """"applied", "rejected", "verified", "moved", "not finite", "growth", "out of memory", "schedule", "probe", "checkpoint",
    "run" or "model"."""
    text: str


@dataclass
class CostRecord:
    """What our own measuring took."""

    own_seconds: float = 0.0
    """In the steps that `steps` and `step_seconds` count: all but the first, which also finds the models."""
    steps: int = 0
    step_seconds: float = 0.0
    setup_seconds: float = 0.0
    """Up to the end of the first step."""
    own_device_seconds: float | None = None
    """Device time of our own operations, as far as it was read; None where no device was timed."""
    exempt_steps: int = 0
    exempt_seconds: float = 0.0
    """Of `steps` and `own_seconds`: steps that were examined whatever the budget."""
    norms_every: int = 1
    ledger_every: int = 1
    readings_dropped: int = 0
    """Gradients not measured because a device had not finished the readings before."""
    recent_us: float | None = None
    """Microseconds a step, lately."""
    recent_share: float | None = None
    """Fraction of the step's time, lately."""
    unended_seconds: float = 0.0
    unended_own_seconds: float = 0.0
    """What was told since the last step ended: a long step is told in parts, and its rate is that of the whole."""
    lately: tuple[float, float, float] | None = None
    """Moving averages of the steps in an event, their seconds and our own of these. Rates are ratios of these averages, so that
    an event counts by its time: a mean of rates would be too high where steps differ in length."""

    @property
    def share(self) -> float | None:
        """Share of the steps' time."""
        return self.own_seconds / self.step_seconds if self.step_seconds else None

    @property
    def share_of_others(self) -> float | None:
        """The same of the steps that are not exempt from the budget; None if there is none."""
        if self.steps <= self.exempt_steps or self.step_seconds <= self.exempt_seconds:
            return None
        return max(0.0, self.own_seconds - self.exempt_seconds) / (self.step_seconds - self.exempt_seconds)


@dataclass(frozen=True)
class Problem:
    """A part of gradtui that failed."""

    error: str
    """The newest one."""
    failures: int
    """How often it failed; the probe switches a part off after the third time."""


@dataclass
class RunState:
    """The whole picture. `version` grows with every event, so a panel can tell that nothing changed."""

    version: int = 0
    started: RunStarted | None = None
    ended: RunEnded | None = None
    seconds: float = 0.0
    step: int = 0
    """As of the newest `Progress`, like `micro_steps`: events may have told of later steps."""
    micro_steps: int = 0
    skipped_steps: int = 0
    steps_per_second: float | None = None
    unregistered: tuple[UnregisteredModule, ...] = ()
    """Modules that run inside a model without being registered with it."""
    phase: Phase = Phase.LOAD
    paused: bool = False
    single_steps: bool = False
    """The person asked for so many steps and another hold."""
    runs_to: int | None = None
    """The step after which `RunTo` pauses the run."""
    loss: Series = field(default_factory=Series)
    gradient_norm: Series = field(default_factory=Series)
    before_clipping: Series = field(default_factory=Series)
    """The total as it was before the script clipped it by norm, of the steps in which it did."""
    clipped_at: float | None = None
    """The norm that it clips at; None as long as it does not."""
    clip_thresholds: Series = field(default_factory=Series)
    """The same over steps."""
    norm_summary: NormSummary = field(default_factory=NormSummary)
    bad_step: NonFiniteFound | None = None
    """Where NaN or Inf appeared first; kept for good."""
    pauses_at_bad_step: bool = False
    """The run is to be held at the next one."""
    micro_norms: MicroStepNorms = field(default_factory=MicroStepNorms)
    """What had accumulated after each micro-step, while a person follows that."""
    history: RowHistory = field(default_factory=RowHistory)
    tree: TreeState = field(default_factory=TreeState)
    trained_tree: TreeState | None = None
    """The models that trained last, if none of them is listed any more and none of those in `tree` has trained."""
    models: dict[int, ModelRecord] = field(default_factory=dict)
    """By number: models that were listed before; `model_records` puts them together with the present ones."""
    optimizers: tuple[OptimizerInfo, ...] = ()
    extended: OptimizersExtended | None = None
    """What commands have added to the optimizers; None where that is nothing."""
    groups_since: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By optimizer and group: its settings are in use since a step between these two, both included."""
    groups: GroupsRead | None = None
    """Learning rates and the like, as they were read last."""
    optimizer_steps: list[int] = field(default_factory=list)
    phases: dict[Phase, PhaseRecord] = field(default_factory=lambda: {phase: PhaseRecord() for phase in Phase})
    device: DeviceSampled | None = None
    cost: CostRecord = field(default_factory=CostRecord)
    pending: dict[int, Command] = field(default_factory=dict)
    """Commands submitted by this viewer and not yet answered, by id."""
    interventions: list[CommandApplied] = field(default_factory=list)
    """The newest freezes and unfreezes, whoever asked for them."""
    intervention_count: int = 0
    """How many there have been."""
    refused: list[CommandRejected] = field(default_factory=list)
    """The newest commands that were not carried out."""
    log: list[LogEntry] = field(default_factory=list)
    """The newest entries."""
    log_count: int = 0
    """How many entries there have been."""
    traced: StepMemoryProfiled | None = None
    """The step that was taken apart last, of these models."""
    unexplained_first: int | None = None
    """Bytes in no category at the end of the first optimizer step; None before that."""
    graphs: GraphsAlive | None = None
    """Graphs that are alive although no backward of the step reached them, as told last."""
    growth: GrowthWatch = field(default_factory=GrowthWatch)
    """Whether memory at the end of a step rises and rises."""
    out_of_memory: list[OutOfMemory] = field(default_factory=list)
    """Failed allocations, as far as they were told; never more than the probe tells, a few dozen."""
    schedule_failed: bool = False
    """The run was stopped since it could not be what its schedule says."""
    schedule_notes: list[str] = field(default_factory=list)
    """What became of the schedule that is replayed, as far as it is not what it asks for."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """Parts of gradtui that failed, and how."""

    def note_problem(self, part: str, error: str) -> None:
        """A part of gradtui has failed."""
        known = self.problems.get(part)
        self.problems[part] = Problem(error, known.failures + 1 if known is not None else 1)

    def note_submitted(self, command: Command) -> None:
        """Remember that a command is on its way, so that it can be shown as pending."""
        self.pending[command.id] = command
        self.version += 1

    def pending_toggles(self) -> list[SetTrainable | TrainOnly]:
        """Freezes and unfreezes that the training thread has not answered yet, oldest first."""
        return [command for command in self.pending.values() if isinstance(command, (SetTrainable, TrainOnly))]
