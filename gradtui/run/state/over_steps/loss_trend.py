"""In which direction the loss goes. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState

COMPARED = 100
"""The newest losses that are compared: the newer half with the older one."""
_Z = 2.576
"""Standard deviations within which 99 % of the rank sums of equal halves are."""
_MIN_COMPARED = 10


class LossDirection(str, Enum):
    """The direction of the newest losses."""

    FALLING = "falling"
    RISING = "rising"
    FLAT = "flat"

    __str__ = str.__str__


@dataclass(frozen=True)
class LossTrend:
    """The direction of the losses from the step `first` to the step `last`."""

    direction: LossDirection
    first: int
    last: int


def loss_trend(state: RunState) -> LossTrend | None:
    """Return the direction of the run's newest losses, those of one model and of the main optimizer.

    None where it is unknown: with few losses, with one that is not finite, and where several optimizers step in turns, because
    the losses of a GAN have no direction that is a good one.
    """
    if optimizer_turns(state).shown:
        return None
    breaks = [*model_breaks(state), *(each.made.step for each in state.kept.returns)]
    since = max((state.main_since, *(step + 1 for step in breaks)))
    first = max(bisect_left(state.loss.steps, since), len(state.loss) - COMPARED)
    direction = direction_of(state.loss.values[first:])
    return LossTrend(direction, state.loss.steps[first], state.loss.steps[-1]) if direction is not None else None


def direction_of(values: Sequence[float]) -> LossDirection | None:
    """Compare the newer half of a course with the older one by the ranks of their values.

    This is the test of Mann and Whitney in its normal approximation, at a significance of 1 %.
    """
    if len(values) < _MIN_COMPARED or not all(map(math.isfinite, values)):
        return None
    count, half = len(values), len(values) // 2
    order = sorted(values)
    ranks = [(bisect_left(order, value) + bisect_right(order, value) + 1) / 2 for value in values]
    mean_rank = (count + 1) / 2
    spread = sum((rank - mean_rank) ** 2 for rank in ranks) / (count - 1)
    deviation = sum(ranks[half:]) - (count - half) * mean_rank
    # The variance of a sum of ranks that are drawn without replacement, ties included.
    if abs(deviation) <= _Z * math.sqrt(half * (count - half) / count * spread):
        return LossDirection.FLAT
    return LossDirection.FALLING if deviation < 0 else LossDirection.RISING
