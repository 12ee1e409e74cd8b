"""What share of the training loop each part of a step took, and whether one of them stands out. Pure."""

from __future__ import annotations

import math

from gradtui.dataclass import dataclass
from gradtui.protocol.step_times import PartTime, StepPart, StepTimesMeasured

_MIN_STEPS, _MIN_UNSAMPLED = 10, 4
_AS_MEASURED = frozenset({StepPart.WAIT, StepPart.EVALUATION, StepPart.SAVING, StepPart.GRADTUI})
"""Parts that gradtui's own work in sampled steps does not make longer."""
_COMPUTE = (StepPart.FORWARD, StepPart.BACKWARD)
STANDS_OUT = {
    StepPart.WAIT: 0.4,
    StepPart.PREPARE: 0.4,
    StepPart.OPTIMIZER: 0.4,
    StepPart.EVALUATION: 0.4,
    StepPart.SAVING: 0.2,
    StepPart.OTHER: 0.4,
}
"""The share of the loop from which a part that computes no gradient is worth a sentence."""
_COMPUTES = 0.7


@dataclass(frozen=True)
class PartShare:
    """The time of one part of the steps, in seconds, as it would be without gradtui's work in sampled steps."""

    part: StepPart
    seconds: float
    share: float
    """Of the script's time in the training loop, 0 to 1."""
    measured: PartTime


@dataclass(frozen=True)
class StepShares:
    """The parts of the script's training loop, from the end of the first step on. Their shares add up to 1."""

    steps: int
    seconds: float
    """Of the script."""
    own_seconds: float
    """What gradtui's hooks took besides."""
    parts: tuple[PartShare, ...]
    """In the order of a step, without those that took no time."""
    is_disturbed: bool
    """Nearly all steps were sampled, so most parts have gradtui's own work in them."""

    def of(self, *parts: StepPart) -> float:
        """Return the share of some parts together."""
        return sum(each.share for each in self.parts if each.part in parts)

    def a_step(self, part: StepPart) -> float:
        """Return the mean seconds of a part in a step."""
        return sum(each.seconds for each in self.parts if each.part is part) / self.steps

    def stands_out(self, each: PartShare) -> bool:
        """Return whether the share of a part is above its bar, and its own."""
        is_own = not self.is_disturbed or each.part in _AS_MEASURED
        return is_own and each.share >= STANDS_OUT.get(each.part, math.inf)

    @property
    def verdict(self) -> PartShare | None:
        """The part that takes most of what its bar allows, if one is above it. Forward stands for forward and backward."""
        above = [each for each in self.parts if self.stands_out(each)]
        if above:
            return max(above, key=lambda each: each.share / STANDS_OUT[each.part])
        if self.of(*_COMPUTE) >= _COMPUTES and not self.is_disturbed:
            return next((each for each in self.parts if each.part is StepPart.FORWARD), None)
        return None


def step_shares(times: StepTimesMeasured | None) -> StepShares | None:
    """Return the shares of the parts of the loop; None before ten steps.

    In sampled steps gradtui works between the hooks. The mean of the other steps therefore stands for most parts of these.
    """
    if times is None or times.steps < _MIN_STEPS:
        return None
    whole = times.steps / times.unsampled_steps if times.unsampled_steps >= _MIN_UNSAMPLED else None
    seconds = {
        each.part: each.seconds if whole is None or each.part in _AS_MEASURED else each.usual_seconds * whole
        for each in times.parts
    }
    if 2 * (times.steps_with_evaluation - times.steps_with_validation) >= times.steps:
        # Most steps have such a forward: it is a part of the training, as that of a frozen teacher, or of an agent that acts.
        seconds[StepPart.FORWARD] += seconds.pop(StepPart.EVALUATION)
    own = seconds.pop(StepPart.GRADTUI, 0.0)
    total = sum(seconds.values())
    if total <= 0:
        return None
    parts = [
        PartShare(each.part, seconds[each.part], seconds[each.part] / total, each)
        for each in times.parts
        if seconds.get(each.part)
    ]
    return StepShares(times.steps, total, own, tuple(parts), is_disturbed=whole is None)
