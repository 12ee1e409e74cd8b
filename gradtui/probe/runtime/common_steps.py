"""Choose steps that all ranks of a job measure, although each rank decides by its own cost. Pure.

An interval is a power of two, and a rank measures at its multiples. So the steps of the rank that measures least are steps of
all others too, whatever their intervals are.
"""

from __future__ import annotations

from gradtui.probe.runtime.sampling_schedule import StepTime, power_of_two
from gradtui.protocol.ranks import CHECK_EVERY

_FIRST = (1, CHECK_EVERY, 2 * CHECK_EVERY)
"""The steps that every rank checks, unless a check takes longer than `_LONG_S` seconds."""
_LONG_S = 0.25
_LATEST = 2 * CHECK_EVERY
"""Ranks that diverge are to be found within this many steps: up to this interval a check may cost more."""
_SHARE = 0.25
"""The share of the budget that checks at shorter intervals than that may take. At longer ones they may take all of it."""
_RAREST = 1 << 16


class CheckSchedule:
    """Decides at which steps a rank measures what all ranks must have in common: those in `_FIRST`, then every `every`-th.

    Args:
        budget: the share of the training time that all measurements may take.
        step_time: the recent duration of the script's steps.
    """

    def __init__(self, budget: float, step_time: StepTime) -> None:
        self._budget, self._step_time = budget, step_time
        self._newest = self._before = 0.0
        """What the newest two checks have cost, in seconds."""

    @property
    def every(self) -> int:
        """The interval in steps: a power of two, at least `CHECK_EVERY`."""
        # Another process may disturb one check, which must not thin out the next ones.
        typical, allowed = min(self._newest, self._before), self._budget * self._step_time.mean
        if not typical:
            return CHECK_EVERY
        paid = typical / allowed if allowed > 0 else _RAREST
        return power_of_two(min(_RAREST, max(CHECK_EVERY, min(paid / _SHARE, max(_LATEST, paid)))))

    def is_due(self, step: int) -> bool:
        """Return whether to measure after this step."""
        return step > 0 and (step % self.every == 0 or (step in _FIRST and self._newest <= _LONG_S))

    def next_after(self, step: int) -> int:
        """Return the first step after `step` that is due."""
        every = self.every
        early = (each for each in _FIRST if each > step and self._newest <= _LONG_S)
        return min([step - step % every + every, *early])

    def record_cost(self, seconds: float) -> None:
        """Record what a check has cost."""
        self._before, self._newest = self._newest or seconds, seconds
