"""Values that are not finite: where they appeared, what they were made of, and what came of the step."""

from __future__ import annotations

from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.measurements import Event
from gradtui.protocol.vocabulary import Phase


class NonFiniteCause(str, Enum):
    """What the first NaN or Inf was made of. The value says it in words."""

    ZERO_BY_ZERO = "0/0"
    BY_ZERO = "x/0"
    LOG_OF_ZERO = "log of 0"
    LOG_OF_NEGATIVE = "log of a negative number"
    SQRT_OF_NEGATIVE = "sqrt of a negative number"
    FRACTIONAL_POWER = "a negative number to the power of a fraction"
    BEYOND_ONE = "acos, asin or atanh of a number beyond 1 or -1"
    EXP_OVERFLOW = "exp overflow"
    OVERFLOW = "overflow"
    INF_MINUS_INF = "inf - inf"
    ZERO_TIMES_INF = "0 * inf"
    TIMES_INF = "x * inf"
    MASKED_ROW = "softmax of a row that is -inf throughout"
    EMPTY_MEAN = "mean of 0 elements"
    EMPTY_LOSS = "mean loss of 0 elements: there is no target, or each one is ignore_index or has the weight 0"
    SPREAD_OF_ONE = "std or var of too few elements"
    SQRT_SLOPE = "sqrt at 0, where its derivative is infinite"
    POWER_SLOPE = "a power below 1 at 0, where its derivative is infinite"
    LOG_SLOPE = "log at 0, where its derivative is 1/0"
    ARC_SLOPE = "acos, asin, acosh or atanh at 1 or -1, where its derivative is infinite"

    __str__ = str.__str__


MAKE_INF = frozenset(
    {
        NonFiniteCause.BY_ZERO,
        NonFiniteCause.LOG_OF_ZERO,
        NonFiniteCause.EXP_OVERFLOW,
        NonFiniteCause.OVERFLOW,
        NonFiniteCause.TIMES_INF,
    }
)
"""Those of which an operation makes Inf or -Inf. Of the others it makes NaN."""


@dataclass(frozen=True, slots=True)
class NonFiniteOutcome:
    """What the first step that ended after non-finite values had appeared did with them."""

    step: int
    """The number of that step."""
    left_out_by: str
    """`scaler`: a loss scaler skipped the step. `script`: the script made no step of these gradients. Empty: neither."""
    weights_are_finite: bool
    parameter: str | None = None
    """Path of a parameter whose weights are not finite; of several, the one nearest to the loss."""
    others: int = 0
    """The number of others."""


@dataclass(frozen=True, slots=True)
class NonFiniteFound(Event):
    """Non-finite values have appeared in `step`, the first ones since the start or since all values were finite again."""

    number: int
    """The number of this occurrence in the run, from 1."""
    value: str
    """`NaN` or `Inf`."""
    phase: Phase | None
    """`data`: the batch holds them; `load`: weights held them before the first step; `forward`: the loss is not finite;
    `backward`: the loss is finite and a gradient is not; `optimizer`: the gradients were finite and weights are not. None:
    forward, or an update since `last_finite`."""
    last_finite: int | None
    """The last earlier step that was measured and was finite; None if there was none."""
    module: str | None = None
    """Path of the module whose operation produced them in forward; None outside of any module, or if unknown."""
    until: str | None = None
    """Path of the last module that they may come from; equal to `module` where the module is known."""
    is_input: bool = False
    """They were in an input of the module that came from outside of autograd's graph."""
    parameter: str | None = None
    """Path of the parameter whose weights hold them, or whose gradient does (of several, the one nearest to the loss)."""
    others: int = 0
    """How many other parameters hold them in the same way."""
    exact: bool = True
    """False where phase, module, parameter or step may be another one."""
    earliest: int | None = None
    """The first step that they may come from, where that may be earlier than `step`."""
    batch_is_finite: bool = False
    """The probe checked the step's batch, and it is finite."""
    learning_rate: float | None = None
    """The learning rate of that parameter's group, with phase `optimizer`."""
    operation: str | None = None
    """With phase `backward`: the operation that they probably came from, such as `SqrtBackward0`. Of those whose derivative may
    not be finite it is the only kind that leads to these parameters."""
    holds: bool = False
    """The probe holds training at the next step boundary, because the user asked for it."""
    lost_eps: tuple[float, str] | None = None
    """With phase `optimizer`: the `eps` of that parameter's group, and the dtype in which it is 0."""
    batches: tuple[NamedBatch, ...] = ()
    """The batch, where a DataLoader yielded it; several where several DataLoaders yielded parts of it."""
    cause: NonFiniteCause | None = None
    """What they were made of, as the values say that the operation was given; None where these are not known."""
    dtype: str = ""
    """The dtype in which that operation computed, such as `float16`; empty if it is not known, or says nothing."""
    outcome: NonFiniteOutcome | None = None
    """What came of the step."""


@dataclass(frozen=True, slots=True)
class NonFiniteSettled(Event):
    """A step has ended after non-finite values had appeared."""

    number: int
    """As in `NonFiniteFound`."""
    outcome: NonFiniteOutcome
