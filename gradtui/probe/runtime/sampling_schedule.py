"""Decide how often to measure, so that the cost stays within its share of the training time. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque

_SMOOTHING = 0.25
_WARMUP_S = 0.5
_SPREAD_ROUNDS, _SPREAD_S = (10, 20, 40, 80, 160, 320), 2.0
"""The rounds that are measured after the warm-up regardless of the cost, and the limit in seconds of what all measurements
before them may have cost."""
_LONG_S = 0.1
"""After a measurement that takes longer than this, no further step is measured regardless of the cost for the same reason."""
_MAX_INTERVAL, _MAX_INTERVAL_S = 1_000, 1.0
"""Even the most expensive measurement is made once in this many steps or, if steps are short, in as many as take this long."""
_MAX_MEAN = 2
"""In multiples of a typical step."""
_VARIATION = 2
"""The costs of measurements vary. All of them together may be this many times what is aimed at: schedules aim at half of the
user's budget."""
_KEPT = 128
"""Durations of steps that are kept."""
_MIN_STEP_S = 5e-5
"""The shortest step time assumed. A step may seem shorter after the estimated overhead is subtracted."""


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << (math.ceil(max(1.0, number)) - 1).bit_length()


class StepTime:
    """Tracks the recent duration of the script's steps, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.total = 0.0
        """The training time so far, without the first step, whose duration includes the setup before it."""
        self.typical = 0.0
        """The median of `recent`, 0 while there is none."""
        self.recent: deque[float] = deque(maxlen=5)
        """The durations of the newest steps, the newest last."""
        self.newest: deque[float] = deque(maxlen=_KEPT)
        """More of them; NaN for a sampled step, whose duration is less exact."""
        self.count = 0
        """The number of durations added so far."""
        self.has_several_optimizers = False
        """Whether the next steps may be those of different optimizers."""

    @property
    def mean(self) -> float:
        """A moving mean of the durations in seconds, limited to twice the typical one.

        After a pause an unlimited mean would be long for a while, and cause a burst of measurements.
        """
        return min(self.seconds, _MAX_MEAN * self.typical)

    def add(self, seconds: float, *, is_sampled: bool = False) -> None:
        """Add the duration of one step, in seconds."""
        self.recent.append(seconds)
        self.typical = statistics.median(self.recent)
        self.newest.append(math.nan if is_sampled else seconds)
        self.count += 1
        self.seconds += (seconds - self.seconds) * (_SMOOTHING if self.seconds else 1.0)


class SamplingSchedule:
    """Decides step by step whether to measure.

    The first `warmup` steps are measured regardless of the cost, until they have cost half a second together, because
    the user sees them first. If `is_spread`, rounds at growing distances are measured regardless of the cost: a short run shows
    in these what changes with time, such as graphs that accumulate. After that every k-th step is
    measured, counted from the last one measured, with k = cost / (budget x step time), both smoothed. Where one round of
    training takes several optimizer steps (a GAN), whole rounds are measured or skipped, so that no optimizer is always the
    one missed.

    The cost is the median of the last few, since one measurement disturbed by another process would thin out the next hundred.

    After the first measurement, the schedule selects no step that the measurement would make longer by more than `longest`
    times the step's own duration.
    """

    def __init__(
        self,
        budget: float,
        step_time: StepTime,
        warmup: int = 16,
        longest: float = math.inf,
        *,
        is_spread: bool = False,
    ) -> None:
        self.every = 1
        self.step_time, self._budget = step_time, budget
        self._warmup, self._longest, self._is_spread = warmup, longest, is_spread
        self.least = 1
        """The least interval between steps that are measured because the budget allows it."""
        self._forced = self._forced_next = 0
        """How many of the next steps are measured regardless of the cost; the second is 0 once the first of them has begun."""
        self._total = 0.0
        self._measured = 0
        """The step at which the last measured round began."""
        self._costs: deque[float] = deque(maxlen=5)
        self._alone: deque[float] = deque(maxlen=5)
        """The part of each of `_costs` by which the measurement made its own step longer."""
        self.is_exempt = True
        """Whether the last measured round was measured regardless of the budget."""
        self._is_paid = False
        """Whether an interval pays for a measurement: not while its cost is unknown, nor at the rarest interval."""
        self._paid = 0.0
        """The cost in seconds of the measurements within the budget so far."""

    @property
    def is_long(self) -> bool:
        """Whether a measurement takes so long that only one step, not several, is measured regardless of the cost."""
        return bool(self._alone) and statistics.median(self._alone) > _LONG_S

    @property
    def allows_profile(self) -> bool:
        """Whether a memory profile, about ten times as long as a sample, takes at most 5 % of the training time so far."""
        return bool(self._alone) and 10 * statistics.median(self._alone) <= 0.05 * self.step_time.total

    def end_warmup(self) -> None:
        """Measure no more steps regardless of the cost only because they are among the first."""
        self._warmup = 0

    def force(self, steps: int = 1, *, at_boundary: bool = False) -> None:
        """Measure the next `steps` steps regardless of the cost, after a change. Only one if a measurement takes long.

        `at_boundary` says that the step before has ended. Its cost, which is recorded later, is not that of one of them.
        """
        self._forced = max(self._forced, steps)
        if at_boundary:
            self._forced_next = self._forced

    def is_due(self, executed: int, round_length: int = 1, *, wanted: bool = False) -> bool:
        """Return whether to measure the step after `executed` steps, in rounds of `round_length` optimizer steps.

        Call it once a step. A step `wanted` for another reason is measured, and the next interval starts from it.
        """
        self._forced_next = 0
        began = executed - executed % round_length
        due = began == self._measured or began >= self._measured + self._interval * round_length
        is_forced = self._is_forced(executed) or self._is_in_spread(executed // round_length)
        if wanted or is_forced or (due and not self._is_too_long()):
            if began != self._measured:
                self.is_exempt = not (self._is_paid and due and self._can_pay())
            self._measured = began
            return True
        return False

    def steps_until_due(self, executed: int) -> int:
        """Return how many steps after the one that follows `executed` steps need no measurement, in rounds of one step."""
        if self._is_forced(executed + 1):
            return 0
        until_spread = next(
            (rounds - executed - 1 for rounds in _SPREAD_ROUNDS if rounds > executed and self._is_in_spread(rounds)),
            _MAX_INTERVAL,
        )
        if self._is_too_long():
            # Whether steps have become longer need not be checked as often as a measurement could be paid for.
            return until_spread
        return min(until_spread, max(0, self._measured + self._interval - executed - 1))

    @property
    def _interval(self) -> int:
        """The interval for the present step time: steps may have become longer since `every` was computed."""
        return self.every if self.every <= _MAX_INTERVAL else min(self.every, self._rarest)

    @property
    def _rarest(self) -> int:
        return max(_MAX_INTERVAL, int(_MAX_INTERVAL_S / max(self.step_time.typical, _MIN_STEP_S)))

    def _is_forced(self, executed: int) -> bool:
        return self._forced > 0 or (executed < self._warmup and self._total < _WARMUP_S and not self.is_long)

    def _is_in_spread(self, rounds: int) -> bool:
        return self._is_spread and rounds in _SPREAD_ROUNDS and self._total < _SPREAD_S

    def _can_pay(self) -> bool:
        """Return whether the training time so far pays for one more measurement: the first step seems as long as its setup."""
        allowed = _VARIATION * self._budget * self.step_time.total
        return self._paid + statistics.median(self._costs) <= allowed

    def _is_too_long(self) -> bool:
        return bool(self._alone) and statistics.median(self._alone) > self._longest * self.step_time.mean

    def record_cost(self, seconds: float, beside: float = 0.0) -> None:
        """Record the cost of one measurement: `seconds`, and `beside` for the work outside of the step that it required."""
        is_long = seconds > _LONG_S
        self._forced = max(
            0 if is_long else self._forced - 1, min(self._forced_next, 1) if is_long else self._forced_next
        )
        self._total += seconds
        self._alone.append(seconds)
        self._costs.append(seconds + beside)
        self._paid += 0.0 if self.is_exempt else seconds + beside
        allowed = self._budget * self.step_time.mean
        wanted = statistics.median(self._costs) / allowed if allowed > 0 else math.inf
        self.every, self._is_paid = max(self.least, math.ceil(min(self._rarest, wanted))), wanted <= self._rarest
