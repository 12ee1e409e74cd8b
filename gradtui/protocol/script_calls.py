"""What came of calls that scripts make seldom: loading and saving states, making optimizers and schedulers; and of clipping."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.measurements import Event


@dataclass(frozen=True, slots=True)
class StateLoaded(Event):
    """A call of `Module.load_state_dict` left tensors of a used model without a value. The newest event of a call holds."""

    number: int
    """Of the call."""
    module: str
    """The type of the module."""
    given: int
    """Number of keys that were given."""
    matched: int
    """Those of them that the module has."""
    expected: int
    """Keys that the module has."""
    unexpected: tuple[str, ...]
    """Given keys that the module does not have: the first ones."""
    missing: tuple[str, ...]
    """Keys of the module that were not given: the first ones."""
    given_prefix: str
    """With this at the beginning of given keys replaced by `expected_prefix`, `would_match` further keys fit."""
    expected_prefix: str
    would_match: int
    frozen: tuple[str, ...]
    """Frozen parameters that no call has loaded, and that would have matched or are a whole part: the first paths."""
    frozen_tensors: int
    """Number of all of them."""
    are_own: bool
    """All given tensors were the module's own ones: the call changed nothing."""
    is_loaded: bool
    """Another call has loaded what this one left."""
    site: CallSite | None
    fitting: tuple[str, ...] = ()
    """Parameters that no call has loaded, and that would have matched: the first paths."""
    file: str = ""
    """The file that these are in, or tensors of other shapes, if the call was given only a part of it."""
    other_shapes: int = 0
    """Keys of this file that the module has with another shape, and that the call was not given."""


@dataclass(frozen=True, slots=True)
class StateAliased(Event):
    """A kept `state_dict()` is the live weights, which have moved since it was made."""

    how: str
    """What happened to it: `loaded` into the module that it is of, `saved`, or only `kept`."""
    module: str
    """The type of the module."""
    name: str
    """The variable that holds it, as the script writes it; empty if that is unknown."""
    tensors: int
    """Tensors that share memory with the module's."""
    made_step: int
    """The step after which it was made."""
    site: CallSite | None
    """Where it was loaded or saved; if it was only kept, where it was made."""


@dataclass(frozen=True, slots=True)
class OptimizerStateMisplaced(Event):
    """`Optimizer.load_state_dict` has put state onto other parameters than those it is of. The newest event holds."""

    optimizer: int
    tensors: int
    """Parameters with state in what was loaded."""
    known: int
    """Those of them whose state is known to be of a certain parameter."""
    moved: int
    """Those of them that got the state of another one."""
    examples: tuple[tuple[str, str], ...]
    """The first of them: the path of the parameter that the state is of, and that of the one that got it."""
    unfit: int
    """Parameters that got state of another shape."""
    site: CallSite | None


@dataclass(frozen=True, slots=True)
class OptimizersRemade(Event):
    """Optimizers of the same parameters were made again and again."""

    type_name: str
    remade: int
    """Optimizers that replaced one which had made one or two steps."""
    longer: int
    """Those that replaced one which had made more steps."""
    has_state: bool
    """The optimizer has state that steps build up, such as moments."""
    first_step: int
    site: CallSite | None


@dataclass(frozen=True, slots=True)
class ScheduleMisses(Event):
    """A scheduler changes no learning rate of some parameters that are trained: of others only, or because it never steps."""

    scheduler: str
    """Its type."""
    optimizer: int
    """Index of the optimizer that it changes."""
    groups: tuple[int, ...]
    """Groups of this optimizer that were added after the scheduler was made; empty if the optimizer does not step any more."""
    rate: float | None
    """The learning rate that stays as it is."""
    steps: int
    """Steps of the scheduler without effect; 0 where it has made none."""
    since_step: int
    stepping: int
    """Index of the optimizer that steps in place of the scheduler's, -1 where `groups` are named or it has made no step."""
    site: CallSite | None
    """Where the scheduler was made."""
    epochs: int = 0
    """How often training has gone through its data, where the scheduler has made no step; 0 again once it has made one."""


@dataclass(frozen=True, slots=True)
class RateIsFactor(Event):
    """The function of a `LambdaLR` returns a learning rate. `LambdaLR` multiplies the first one by what it returns."""

    optimizer: int
    """Index of the optimizer that it changes."""
    first_rate: float
    """The learning rate that the optimizer was made with."""
    rate: float
    """The present one."""
    steps: int
    """Steps of the scheduler."""
    site: CallSite | None
    """Where the scheduler was made."""


@dataclass(frozen=True, slots=True)
class ScheduleOver(Event):
    """The script steps a scheduler after its schedule has ended, or a scheduler lowers the learning rate too fast.

    After its end `CosineAnnealingLR` raises the rate again. Others divide it by 1,000 within few steps of their optimizer.
    """

    scheduler: str
    """Its type."""
    optimizer: int
    """Index of the optimizer that it changes."""
    length: int
    """Steps of the scheduler to its end, or until it has divided the rate by 1,000."""
    steps: int
    """Steps that it has made."""
    is_cyclic: bool
    """The rate rises again after `length` steps."""
    site: CallSite | None
    """Where the scheduler was made."""


@dataclass(frozen=True, slots=True)
class ClippingMeasured(Event):
    """What the script's clipping calls of some steps clipped."""

    calls: int
    """Number of calls that were looked at."""
    late: int
    """Those between the step of the optimizer that has the gradients and the next backward."""
    empty: int
    """Those that were given no parameter at all."""
    early: int
    """Those before the backward whose gradients the step applies, when there was no gradient."""
    cut: int
    """Those whose norm was above the threshold, with gradients of parameters that are frozen or in no optimizer in use."""
    filled: int
    """Those of them in which these gradients had more than half of the norm's square."""
    share: float | None
    """The median of their share in these calls."""
    norm: float | None
    """The norm that the newest of these calls clipped."""
    foreign: tuple[str, ...]
    """The paths of these parameters in that call: the first ones."""
    foreign_tensors: int
    """Number of all of them."""
    frozen_tensors: int
    """Those of them that are frozen."""
    site: CallSite | None
