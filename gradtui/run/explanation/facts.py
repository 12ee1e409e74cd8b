"""The facts about one row of the module tree. Plain frozen data: None stands for what is unknown or does not apply."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.freezes import RowsInForce
from gradtui.protocol.vocabulary import GroupSettings, ParameterState, StateReason
from gradtui.run.state.backward.barriers import Barriers
from gradtui.run.state.parts.job import NormRange
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
    step: int = 0
    """The step of `reach`, where a gradient came in another one; else 0."""
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
class SharedMemory:
    """The parameters that are different objects over the same memory."""

    paths: tuple[str, ...]
    stepped: int
    """How many of them train and are in an optimizer."""
    of_several_models: bool
