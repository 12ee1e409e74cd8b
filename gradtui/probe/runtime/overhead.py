"""What our hooks cost, step by step: for the cadences, for the person, and to know how long a step takes without us.

Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.probe.runtime.hook_set import HookSet
from gradtui.probe.runtime.sampling_schedule import StepTime

_NEWEST = 16
"""Of many steps told at once, the length of these is what a step takes lately."""
_FIRST_ESTIMATES = 5
_REPORTS_EACH = 10
"""So many reports share one estimate of what hooks cost on this machine as it is now."""


class OverheadMeter:
    """Reads off `HookSet.own_ns` since this or that moment, and has what hooks hide estimated again now and then."""

    def __init__(self, hooks: HookSet, now: int) -> None:
        self.step_time = StepTime()
        self.hooks = hooks
        for _ in range(_FIRST_ESTIMATES):
            hooks.calibrate()
        self._stepped_at = self._held_at = now
        self._reports = 0
        self._at_step = self._at_boundary = self._at_report = 0

    def steps_ended(self, moments: Sequence[int]) -> None:
        """Steps have ended at these moments: the script's own share of their time is what the hooks did not take."""
        own, self._at_step = self.hooks.own_ns - self._at_step, self.hooks.own_ns
        each = max(0, own) // len(moments)
        if len(moments) > _NEWEST:
            self._stepped_at, moments = moments[-_NEWEST - 1], moments[-_NEWEST:]
        for now in moments:
            self.step_time.add((now - self._stepped_at - each) / 1e9)
            self._stepped_at = now

    def of_step(self) -> float:
        """Seconds that the hooks took from one step boundary to the next, at which this is called."""
        own, self._at_boundary = self.hooks.own_ns - self._at_boundary, self.hooks.own_ns
        return own / 1e9

    def to_report(self) -> int:
        """Nanoseconds that the hooks took since this was asked last."""
        self._reports += 1
        if self._reports % _REPORTS_EACH == 0:
            self.hooks.calibrate()
        own, self._at_report = self.hooks.own_ns - self._at_report, self.hooks.own_ns
        return own

    def pause_began(self, now: int) -> None:
        """The person holds the run."""
        self._held_at = now

    def pause_ended(self, now: int) -> None:
        """It goes on: that time was neither our own cost nor the step's."""
        self.hooks.own_ns -= now - self._held_at
        self._stepped_at += now - self._held_at
