"""The facts that only the page of a row has. Plain frozen data, as `gradtui.run.explanation.facts`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import GradientPathFound, OptimizerStateRead
from gradtui.protocol.operations import OperationsRecorded
from gradtui.protocol.vocabulary import BufferInfo, GradientStats, ModuleInfo, ParameterInfo, ParameterState, Phase
from gradtui.run.explanation.facts import (
    Backward,
    Cause,
    Kept,
    ModuleExplanation,
    ParameterExplanation,
    Shard,
    SharedMemory,
)
from gradtui.run.state.findings import Finding
from gradtui.run.state.forecasts.forecast import Forecast
from gradtui.run.state.norms.aggregated_stats import AggregatedStats
from gradtui.run.state.parts.job import NormRange
from gradtui.run.state.run_state import ModelRecord
from gradtui.run.state.selectors import SubtreeTotals


@dataclass(frozen=True)
class Norm:
    """The L2 norm of the gradient of a row."""

    value: float
    step: int | None
    total: float | None
    """Of all gradients together in that step; None if it was not read."""
    is_part: bool
    """It is that of this rank's part of sharded parameters: that of the whole is at least as high."""


class NoNorm(Enum):
    """Why the gradient of a row has no norm."""

    NO_BACKWARD = "no backward"
    """No backward pass has been seen."""
    NOT_OWNED = "not owned"
    """No optimizer has the parameters."""
    NO_GRADIENT = "no gradient"
    """There was no gradient in the last measured step."""


@dataclass(frozen=True)
class Curve:
    """The newest values of a row over steps."""

    first: int
    """The step of the first value."""
    last: int
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Toggled:
    """A command that changed whether parameters train."""

    step: int
    text: str
    """What it did, in words."""


@dataclass(frozen=True)
class PassedModule:
    """A module on the way of a gradient."""

    path: str
    """The path, or the name of a model."""
    name: str
    type_name: str
    parent: int
    states: str
    """The distinct letters of its own parameters, or of its whole subtree if it has none of its own."""
    block: int
    """The outermost module around it whose name is a number, as in ModuleList and Sequential; -1 if there is none."""
    is_inside: bool
    """It is the module to which the way leads, or in it."""


@dataclass(frozen=True)
class PassedParameter:
    """A parameter at the end of the way of a gradient."""

    path: str
    state: ParameterState
    trainable: bool
    norm: Norm | None
    """Its total is None where this rank has only parts of the gradients."""


@dataclass(frozen=True)
class GradientWay:
    """The way of a gradient from the loss to a row, with what lies on it."""

    found: GradientPathFound
    modules: Mapping[int, PassedModule]
    """By index: the modules on it, that of the row, and the blocks around them."""
    parameters: Mapping[int, PassedParameter]
    """By index: that of the row, and the one upstream to which the gradient passes on."""
    trains: bool
    """A gradient comes to a parameter in the module of the row."""
    cause: Cause
    """Why no gradient comes to its module, if none does."""


class AwaitedWay(Enum):
    """When the way of a gradient that was asked for will be known."""

    IN_NEXT_STEP = "in the next step"
    PAUSED = "paused"
    """In the next step, and training is paused."""


@dataclass(frozen=True)
class Derivation:
    """What a freeze or an unfreeze of a row would change, and what the numbers are made from."""

    trainable: bool
    """It is an unfreeze."""
    change: Forecast | None
    """None where nothing would train."""
    with_gradient: int | None = None
    """Tensors whose gradients are all that changes in these; None where the repeated operations say which have one."""
    rules: tuple[tuple[str, int, int], ...] = ()
    """See `optimizer_rules`."""
    largest: tuple[tuple[str, int], ...] = ()
    """`Forecast.largest` with the names of the modules; empty outside of modules."""
    peak: tuple[Phase, int] | None = None
    """The phase and the step of the highest peak now."""
    recorded: OperationsRecorded | None = None
    """The operations that the planner repeats."""
    is_compiled: bool = False
    takes_turns: bool = False
    """Several optimizers take turns."""


@dataclass(frozen=True)
class RankNorms:
    """The norm of the gradient of a parameter on the ranks of a job."""

    ranks: int
    is_replica: bool
    unlike: NormRange | None
    """How it differs where it should not."""
    step: int = 0
    """The newest step that all ranks have measured; 0 without one."""
    at: tuple[tuple[int, float], ...] = ()
    """Each rank with its norm in that step."""


@dataclass(frozen=True)
class Details:
    """The figures that only the page of a row has."""

    findings: tuple[Finding, ...]
    """The open ones that concern it."""
    way: GradientWay | AwaitedWay | None
    """None where no command has requested it."""
    derivation: Derivation | None
    """None where nothing can be said."""
    norm: Norm | NoNorm
    norms: Curve | None
    """None where fewer than two are known."""
    waiting: tuple[bool, ...]
    """For each of its parameters on the way to the next step boundary: whether it is unfrozen there."""
    keeps_for_own: bool
    """A gradient comes to parameters in its module: what autograd keeps there is also for these."""
    toggles: tuple[Toggled, ...]
    """The newest commands that changed its parameters, the newest first."""
    earlier_toggles: int
    """Number of the earlier ones."""
    shard: Shard | None
    """As in the explanation, however many parameters there are."""
    optimizer_state: OptimizerStateRead | None
    """What the optimizers keep for it, as it was read last; None before that, and where there is no optimizer."""


@dataclass(frozen=True)
class ParameterDetails(Details):
    """The same of a parameter."""

    row: ParameterExplanation
    info: ParameterInfo
    module: ModuleInfo
    optimizers: int | None
    """How many have been seen; None if the script has stepped without one."""
    shared: SharedMemory | None
    ranks: RankNorms | None
    """None if this is no job of several ranks."""
    statistics: tuple[int, GradientStats] | None
    """The step of the newest sample of its gradient, and the statistics of that."""
    ratios: Curve | None
    kept: Kept | None
    """What is kept in its module."""
    backward: Backward | None
    """How far backward runs in its module."""


@dataclass(frozen=True)
class Recomputed:
    """What backward computes again in a module."""

    bytes: int | None
    """None where it was not seen."""
    inputs: int
    """Bytes that the checkpoint keeps for that."""
    step: int


@dataclass(frozen=True)
class Highest:
    """The most memory that was held while a module ran, forward or backward."""

    bytes: int
    of_the_step: bool
    """It is the most of the whole step."""
    step: int


@dataclass(frozen=True)
class ModuleDetails(Details):
    """The same of a module."""

    row: ModuleExplanation
    info: ModuleInfo
    states: str
    """The letter of each of its parameters."""
    mode: tuple[str, bool] | None
    """The letter of the `GradMode` under which it ran, and whether it ran in train mode; None while unknown."""
    micro_steps: tuple[int, tuple[float, ...]] | None
    """The newest step and the norms accumulated after each micro-step, if it is a root and these are followed."""
    record: ModelRecord | None
    """That of the model of which it is the root."""
    earlier: tuple[ModelRecord, ...]
    """If it is a root: those of models that are gone, the newest first."""
    sums: SubtreeTotals
    statistics: AggregatedStats | None
    """Of the gradients of all its parameters."""
    of_all: AggregatedStats | None
    """The same of all models. Only for the root of one beside others."""
    recomputed: Recomputed | None
    highest: Highest | None


@dataclass(frozen=True)
class BufferDetails:
    """All of a buffer."""

    info: BufferInfo
    module: ModuleInfo
