"""How often a measurement may be made so that its cost stays under its share of the training time. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque

_SMOOTHING = 0.25
_WARMUP_S = 0.5
_LONG_S = 0.1
"""After a measurement that takes longer than this, no further step is measured regardless of the cost for the same reason."""
_MAX_DEBT = 8
"""Times a typical cost."""
_MAX_INTERVAL, _MAX_INTERVAL_S = 1_000, 1.0
"""Even the dearest measurement is made once in this many steps, or, where they are short, in as many as take so long."""
_MAX_MEAN = 2
"""Times a typical step."""
_MIN_STEP_S = 5e-5
"""No step is shorter; what is left of one after an estimate of our own cost was taken off may seem to be."""


class StepTime:
    """Seconds that a step of the script's takes lately."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.recent: deque[float] = deque(maxlen=5)
        """The newest ones, the newest last."""

    @property
    def typical(self) -> float:
        """The median of the newest ones, 0 while there is none."""
        return statistics.median(self.recent) if self.recent else 0.0

    @property
    def mean(self) -> float:
        """A moving mean. After a pause it would be long for a while, and bring a burst of measurements: so it is limited."""
        return min(self.seconds, _MAX_MEAN * self.typical)

    def add(self, seconds: float) -> None:
        """One step took this long."""
        self.recent.append(seconds)
        self.seconds += (seconds - self.seconds) * (_SMOOTHING if self.seconds else 1.0)


class SamplingSchedule:
    """Decides step by step whether to measure.

    The first `warmup` steps are measured whatever they cost, until they have cost half a second together: a person looks
    at them first. After that every k-th step is, counted from the last one measured, with k = cost / (budget x step time),
    both smoothed. Where one round of training takes several optimizer steps (a GAN), whole rounds are measured or left
    out, so that no optimizer is always the one missed.
    The cost is the median of the last few, since one measurement disturbed by another process would thin out the next
    hundred. What a measurement costs above that is owed, and paid off by intervals of up to twice the length.
    After the first, no step is measured by itself that would take `longest` times its own length longer.
    """

    def __init__(self, budget: float, step_time: StepTime, warmup: int = 16, longest: float = math.inf) -> None:
        self.every = 1
        self._budget = budget
        self._step_time = step_time
        self._warmup = warmup
        self._longest = longest
        self._forced = 0
        self._total = 0.0
        self._measured = 0
        """The step with which the round began that was measured last."""
        self._costs: deque[float] = deque(maxlen=5)
        self._alone: deque[float] = deque(maxlen=5)
        """Of these, what the measurement made its own step longer by."""
        self.is_exempt = False
        """The last measurement was made whatever the budget."""
        self._paid = 0.0
        """What the interval before the next measurement is to pay for."""
        self._debt = 0.0

    @property
    def is_long(self) -> bool:
        """Whether a measurement takes so long that one step is measured regardless of the cost, and not several."""
        return bool(self._alone) and statistics.median(self._alone) > _LONG_S

    def force(self, steps: int = 1) -> None:
        """Measure the next `steps` steps whatever they cost: something has just changed. Only one if it takes long."""
        self._forced = max(self._forced, steps)

    def is_due(self, executed: int, round_length: int = 1, *, wanted: bool = False, early: bool = False) -> bool:
        """Whether to measure the step after `executed` ones, in rounds of `round_length` optimizer steps.

        Asked once a step. What is `wanted` for another reason is measured, and the next measurement counted from it. So is
        what comes `early`: the part of the interval that is left is owed.
        """
        began = executed - executed % round_length
        due = began == self._measured or began >= self._measured + self._interval * round_length
        if early and not due and not self._is_too_long():
            due = True
            self._debt += self._paid * (1 - (began - self._measured) / (self._interval * round_length))
        if wanted or self._is_forced(executed) or (due and not self._is_too_long()):
            self.is_exempt = self._is_forced(executed)
            self._measured = began
            return True
        return False

    def too_early(self, executed: int, most: int) -> int:
        """By how many steps the one after `executed` ones comes too early, where it may come `most` steps early."""
        return max(0, self._measured + self._interval - most - executed)

    def steps_until_due(self, executed: int) -> int:
        """How many steps in a row are not to be measured after the one that follows `executed` ones, in rounds of one step."""
        if self._is_forced(executed + 1):
            return 0
        if self._is_too_long():
            # Whether steps have become longer need not be asked as often as a measurement could be paid.
            return _MAX_INTERVAL
        return max(0, self._measured + self._interval - executed - 1)

    @property
    def _interval(self) -> int:
        """By the steps as they are now: they may have become longer since the cost was compared with them."""
        return self.every if self.every <= _MAX_INTERVAL else min(self.every, self._rarest)

    @property
    def _rarest(self) -> int:
        return max(_MAX_INTERVAL, int(_MAX_INTERVAL_S / max(self._step_time.typical, _MIN_STEP_S)))

    def _is_forced(self, executed: int) -> bool:
        return self._forced > 0 or (executed < self._warmup and self._total < _WARMUP_S and not self.is_long)

    def _is_too_long(self) -> bool:
        return bool(self._alone) and statistics.median(self._alone) > self._longest * self._step_time.mean

    def record_cost(self, seconds: float, beside: float = 0.0, *, for_another: bool = False) -> None:
        """One measurement was made and took this long, and what had to be done for it besides so long again.

        One that was made `for_another` measurement, which pays for it, counts only if it takes long.
        """
        if for_another and seconds <= _LONG_S:
            return
        self._forced = 0 if seconds > _LONG_S else max(0, self._forced - 1)
        self._total += seconds
        self._alone.append(seconds)
        seconds += beside
        self._costs.append(seconds)
        typical = statistics.median(self._costs)
        if not self.is_exempt:
            self._debt = max(0.0, min(self._debt + seconds - (self._paid or typical), _MAX_DEBT * typical))
        self._paid = typical + min(self._debt, typical)
        allowed = self._budget * self._step_time.mean
        wanted = self._paid / allowed if allowed > 0 else math.inf
        self.every = max(1, math.ceil(min(self._rarest, wanted)))
