"""Chooses which parts of the screen each tick redraws, so that no part is older than a second. UI thread.

A part waits from the tick that finds its data changed until it is drawn. A tick draws the parts that would otherwise become too
old. It also draws others ahead of time, as many as an even distribution over the ticks takes, so that no tick is long.

The UI thread holds the interpreter lock (GIL) while it draws, so training loses at least the time that drawing takes. If
drawing takes more than `MAX_LOAD` of a core, the scheduler leaves out ticks. At least one tick per second remains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gradtui.protocol.events import DeviceSampled, Event, PhaseSampled, RankEvent

MAX_LOAD = 0.04
"""The share of a core above which drawing leaves out ticks."""
MAX_DELAY = 1.0
"""Seconds between two ticks at most, unless the rate itself is lower."""

_MAX_AGES = {"output": 0.5}
"""Seconds after a change of its data at which a part must be drawn, if not `_MAX_AGE`."""
_MAX_AGE = 1.0
_SMOOTHING = 0.25
_SHARE_SECONDS = 10.0
"""Seconds over which the measured share is averaged."""

_SAMPLED = (DeviceSampled, PhaseSampled)
"""Events of the sampler threads, which continue while the run is paused."""
_SHOW_SAMPLED = ("memory", "ranks")
"""The parts that show them, of those that wait for changes."""


class RedrawScheduler:
    """Decides at each tick whether to draw, and which parts.

    Args:
        rate: ticks per second.
        wall, cpu: clocks in seconds; `cpu` must count the calling thread only.
    """

    def __init__(
        self, rate: float, *, wall: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._tick = self._delay = 1 / rate
        self._wall, self._cpu = wall, cpu
        self._waiting: dict[str, float] = {}
        """When the data of a part were found changed, of parts that were not drawn since."""
        self._visible: tuple[str, ...] = ()
        self._allowance = 0.0
        """How many parts this tick may draw ahead of time."""
        self._cost = 0.0
        """CPU seconds of the drawing at a tick, a moving average."""
        self._due = 0.0
        self._touched = False
        self._began: tuple[float, float] | None = None
        self._draws_since: float | None = None
        self.share: float | None = None
        """The share of recent wall time that the UI thread was on the CPU; None before the second tick."""

    @property
    def delay(self) -> float:
        """Seconds from one tick that draws to the next."""
        return self._delay

    def touched(self) -> None:
        """Record that the user did something, and waits for what comes of it: the next tick is not left out.

        The CPU time until then counts towards `share` only.
        """
        self._touched, self._due = True, 0.0

    def applied(self, events: Sequence[Event]) -> None:
        """Record that events have been applied to the state that all parts show."""
        inner = [event.event if isinstance(event, RankEvent) else event for event in events]
        if inner:
            self.changed(*(_SHOW_SAMPLED if all(isinstance(event, _SAMPLED) for event in inner) else ()))

    def changed(self, *names: str) -> None:
        """Record that the data of these parts have changed; without names, those of all parts."""
        now = self._wall()
        for name in names or self._visible:
            self._waiting.setdefault(name, now)

    def drawn(self, name: str) -> None:
        """Record that a part was drawn with its newest data, outside of a tick too."""
        self._waiting.pop(name, None)

    def begin(self) -> bool:
        """Start a tick and account for the time since the last one. Return False if this tick is left out."""
        wall = self._wall()
        if wall < self._due:
            return False
        cpu = self._cpu()
        if self._began is not None:
            self._account(wall - self._began[0], cpu - self._began[1], cpu)
        self._began, self._draws_since, self._touched = (wall, cpu), None, False
        self._delay = self._tick
        while self._cost > MAX_LOAD * self._delay and 2 * self._delay <= MAX_DELAY:
            # Doubled, each tick draws twice as many parts and each part keeps its interval: the load never rises by it.
            self._delay *= 2
        # A tick that comes slightly early must count, because the caller calls at fixed times.
        self._due = wall + self._delay - self._tick / 2
        return True

    def _account(self, elapsed: float, spent: float, cpu: float) -> None:
        if elapsed > 0:
            weight, now = min(1.0, elapsed / _SHARE_SECONDS), spent / elapsed
            self.share = now if self.share is None else self.share + weight * (now - self.share)
        if self._draws_since is not None and not self._touched:
            # One expensive tick (a first model, a garbage collection) must not lower the rate for long.
            drawing = min(cpu - self._draws_since, 2 * MAX_LOAD * MAX_DELAY)
            self._cost += _SMOOTHING * (drawing - self._cost)

    def choose(self, visible: Sequence[str]) -> list[str]:
        """Return the visible parts to draw at this tick, and count them as drawn. A part that becomes visible has changed.

        The time from this call to the next tick counts as that of the drawing.
        """
        now, self._draws_since = self._wall(), self._cpu()
        self._waiting |= {name: now for name in visible if name not in self._visible}
        self._visible = tuple(visible)
        even = sum(self._delay / (self._delay + self._patience(name)) for name in visible)
        self._allowance = min(self._allowance, 1.0) + even
        latest = {name: self._waiting[name] + self._patience(name) for name in visible if name in self._waiting}
        chosen = []
        for name in sorted(latest, key=lambda name: latest[name]):
            is_ahead = latest[name] > now + self._delay / 2
            if is_ahead and self._allowance < 1 - 1e-9:
                break
            chosen.append(name)
            del self._waiting[name]
            self._allowance = max(0.0, self._allowance - 1)
        return chosen

    def _patience(self, name: str) -> float:
        """Return for how many seconds a part may wait: a tick finds a change late, and at the full rate may be late itself."""
        return max(0.0, _MAX_AGES.get(name, _MAX_AGE) - max(self._delay, 2 * self._tick))
