"""Measure the overhead of gradtui's hooks per step, for sampling schedules, the user, and the script's own step time.

Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtui.probe.runtime.hook_set import HookSet
from gradtui.probe.runtime.sampling_schedule import StepTime

_NEWEST = 16
"""If more steps than this are reported at once, only the newest ones count for the current step time."""
_FIRST_ESTIMATES = 5
_REPORTS_EACH = 10
"""The number of reports after which `HookSet.calibrate` estimates the hidden cost of a hook again."""


class OverheadMeter:
    """Reads what hooks took as differences between two calls, and recalibrates the hidden cost of hooks now and then.

    `listing_ns` returns what listing models and searching for objects took so far. No step is charged with that: it is done
    once for all steps.
    """

    def __init__(self, hooks: HookSet, now: int, listing_ns: Callable[[], int] = lambda: 0) -> None:
        self.step_time, self.hooks, self._listing_ns = StepTime(), hooks, listing_ns
        for _ in range(_FIRST_ESTIMATES):
            hooks.calibrate()
        self._stepped_at = self._held_at = now
        self._reports = 0
        self._at_step = self._at_boundary = self._at_report = self._listing_at_report = 0

    def steps_ended(self, moments: Sequence[int], *, is_sampled: bool = False) -> None:
        """Record steps that ended at these moments: the script's own share of their time is what the hooks did not take.

        What the hooks took together is divided by the time between these moments: the longest step has most of it.
        """
        own, self._at_step = self.hooks.own_ns - self._at_step, self.hooks.own_ns
        own_share = min(1.0, max(0, own) / max(1, moments[-1] - self._stepped_at))
        if self.step_time.recent:
            self.step_time.total += (moments[-1] - self._stepped_at) / 1e9
        if len(moments) > _NEWEST:
            self._stepped_at, moments = moments[-_NEWEST - 1], moments[-_NEWEST:]
        for now in moments:
            self.step_time.add((now - self._stepped_at) * (1 - own_share) / 1e9, is_sampled=is_sampled)
            self._stepped_at = now

    def of_step(self) -> float:
        """Return the seconds that the hooks took since the previous step boundary. Call it once at each boundary."""
        spent = self.hooks.spent_ns - self._listing_ns()
        own, self._at_boundary = spent - self._at_boundary, spent
        return own / 1e9

    def to_report(self) -> tuple[int, int]:
        """Return the nanoseconds that the hooks took since the last call, and the part of them for listing and searching."""
        self._reports += 1
        if self._reports % _REPORTS_EACH == 0:
            self.hooks.calibrate()
        spent, listing = self.hooks.spent_ns, self._listing_ns()
        own, self._at_report = spent - self._at_report, spent
        listed, self._listing_at_report = listing - self._listing_at_report, listing
        return own, listed

    def pause_began(self, now: int) -> None:
        """Handle the start of a pause by the user."""
        self._held_at = now

    def pause_ended(self, now: int, *, within_hook: bool = True) -> None:
        """Handle the end of a pause, within a hook of gradtui: its time counts neither as overhead nor as part of the step."""
        if within_hook:
            self.hooks.own_ns -= now - self._held_at
        self._stepped_at += now - self._held_at
