"""The facts about one row of the module tree. Plain frozen data: None stands for what is unknown or does not apply."""

from __future__ import annotations

from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.freezes import RowsInForce
from gradtui.protocol.measurements import OptimizerStateRead
from gradtui.protocol.vocabulary import GradientStats, GroupSettings, ParameterState, StateReason
from gradtui.run.state.backward.barriers import Barriers
from gradtui.run.state.norms.aggregated_stats import AggregatedStats
from gradtui.run.state.parts.job import NormRange
from gradtui.run.state.selectors import SubtreeTotals
from gradtui.run.state.time.module_times import ModuleTime


@dataclass(frozen=True)
class Cause:
    """Why a parameter is in its state. At most one field says something; none does where the state says everything."""

    reason: StateReason = StateReason.NONE
    """The cause as the probe knows it."""
    reach: str = ""
    """How far backward runs in its module, a letter of `Reach`, where no gradient comes."""
    barriers: Barriers | None = None
    """What keeps backward out of the module, where it never enters it."""
    passes_on: str = ""
    """The path of the parameter to which the gradient passes on."""
    evaluated_only: bool = False
    """Its model was only evaluated."""
    skipped_steps: int = 0
    """Steps that the loss scaler has skipped, where it skipped the last one."""


NO_CAUSE = Cause()


@dataclass(frozen=True)
class RowState:
    """The states of the parameters of a row."""

    tensors: int
    trainable: int = 0
    """How many of them require a gradient. Counted only where their states differ."""
    kind: ParameterState | None = None
    """None where they differ, or if there are none."""
    since: int | None = None
    """The step at which a command made them what they are; None where none did, or if the script has changed them since."""
    rows: RowsInForce | None = None
    """The rows of the parameter that are frozen, while it trains."""


@dataclass(frozen=True)
class Moves:
    """How far a step moves a row: the norm of the update divided by that of the values."""

    ratio: float
    steps: tuple[int, int] | None
    """The first and the last step of which it is, if the first is old."""
    is_far: bool
    """Whether that is far from what is usual."""


@dataclass(frozen=True)
class RankDifference:
    """The norm in a row that differs most between the ranks of a job."""

    path: str
    """The parameter; empty where the row has no other."""
    norms: NormRange
    ranks: int


@dataclass(frozen=True)
class Shard:
    """What this process holds of sharded parameters."""

    elements: int
    of_elements: int
    bytes: int
    of_bytes: int


@dataclass(frozen=True)
class Owner:
    """An optimizer that has a parameter."""

    number: int
    """Its index among the optimizers."""
    type_name: str
    groups: int
    group: int | None
    """The index of the parameter's group; None if unknown."""
    settings: GroupSettings | None
    since: tuple[int, int] | None
    """The first and the last step since which the settings may be as they are; None without settings."""
    steps: tuple[int, int] | None
    """The steps that it has made, of how many, where several optimizers step."""


@dataclass(frozen=True)
class Backward:
    """How far backward runs in a module."""

    reach: str
    """A letter of `Reach`."""
    step: int
    """The step in which that was measured; 0 if in none."""
    stops: bool = False
    """It stops here, at parameters of the module."""
    barriers: Barriers | None = None
    """What keeps backward out of the module, or where it stops here, out of what comes before."""
    never: tuple[str, ...] = ()
    """The first modules in it that backward never enters, where it enters others."""
    never_count: int = 0


@dataclass(frozen=True)
class Passing:
    """The gradient that passes through a module whose parameters are frozen."""

    norm: float
    """L2 norm at its output."""
    step: int
    is_old: bool


@dataclass(frozen=True)
class Kept:
    """What autograd keeps for backward in a module."""

    bytes: int
    own: int
    """Bytes that its own operations save, without the modules that it calls."""
    step: int
    share: float | None
    """Share of all that autograd keeps, 0 to 1; None where all was measured in another step."""
    passes_on: str
    """A parameter outside of the module for whose gradient it is kept; empty if there is none."""


@dataclass(frozen=True)
class TimeShare:
    """How much of a step a module takes."""

    time: ModuleTime
    of_all: float
    """Seconds of all modules."""
    step: int | None
    """The step in which it was measured, if that is before the newest change."""


@dataclass(frozen=True)
class Holding:
    """The modules of a row whose running statistics a freeze holds."""

    itself: bool
    """It is the module of the row alone."""
    modules: int
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """What happens to a row, and why."""

    row: int
    path: str
    name: str
    """The path, or the name of a model."""
    parameters: range
    state: RowState
    moves: Moves | None
    old_norm: int | None
    """The step of its gradient norm, if that is old."""
    differs: RankDifference | None
    shard: Shard | None


@dataclass(frozen=True)
class ParameterExplanation(Explanation):
    """The same of a parameter."""

    kind: ParameterState
    trainable: bool | None
    """None while unknown."""
    cause: Cause
    is_contended: bool
    """The script sets its requires_grad back to True again and again."""
    rows: RowsInForce | None
    """The rows of it that are frozen."""
    way: tuple[str, ...]
    """The modules through which the gradient comes from the loss, if its path was read."""
    owners: tuple[Owner, ...]


@dataclass(frozen=True)
class ModuleExplanation(Explanation):
    """The same of a module, with all that is in it."""

    problems: tuple[tuple[ParameterState, int], ...]
    """The problem states in it, with their numbers of tensors."""
    holding: Holding | None
    backward: Backward | None
    passing: Passing | None
    kept: Kept | None
    time: TimeShare | None


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
class Details:
    """The figures that only the page of a row has."""

    norm: Norm | NoNorm
    norms: Curve | None
    """None where fewer than two are known."""
    waiting: tuple[bool, ...]
    """For each of its parameters on the way to the next step boundary: whether it is unfrozen there."""
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

    sums: SubtreeTotals
    statistics: AggregatedStats | None
    """Of the gradients of all its parameters."""
    of_all: AggregatedStats | None
    """The same of all models. Only for the root of one beside others."""
    recomputed: Recomputed | None
    highest: Highest | None
