"""Decides when to redraw each part of the screen, so that the UI thread stays within its share of CPU time. UI thread.

The UI thread holds the interpreter lock (GIL) while it draws, so training loses at least the time that the UI thread takes.
It loses more if its steps are short: it waits for the lock and then finds its caches emptied. The scheduler measures the CPU
time of the whole thread between two ticks, including painting and writing, and charges it to the part drawn in the first of
the two. Each part has a minimum interval. If all parts together would cost more than the budget, one factor stretches every
interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_SMOOTHING = 0.25
_SHARE_SECONDS = 10.0
"""Seconds over which the measured share is averaged."""
_DEAR = 0.01
MAX_STRETCH = 32.0
MAX_TICK = 5.0
OFTEN_SECONDS = 3.0
"""How many seconds the app polls for an answer regardless of the budget: longer than most steps take."""


@dataclass
class Part:
    """A part of the screen: the minimum time between two redraws, in seconds, and the cost of one redraw."""

    name: str
    interval: float
    cost: float = 0.0
    """CPU seconds per redraw, a moving average."""
    due: float = 0.0


class RedrawScheduler:
    """Chooses which part to redraw, and when the next tick is due.

    Args:
        budget: the share of one core that the UI thread may use, a fraction of 1; 0 or less means no limit.
        tick: seconds between two ticks while nothing is stretched.
        wall, cpu: clocks in seconds; `cpu` must count the calling thread only.
    """

    def __init__(
        self,
        budget: float,
        tick: float,
        *,
        wall: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._budget, self._tick = budget, tick
        self._wall, self._cpu = wall, cpu
        self._parts: dict[str, Part] = {}
        self._drawn: Part | None = None
        self._idle_cost: float | None = None
        self._touched = False
        self._due = 0.0
        self._often_until = 0.0
        self._last: tuple[float, float] | None = None
        self.share: float | None = None
        """The share of recent wall time that the UI thread was on the CPU; None before the second tick."""

    def add(self, name: str, interval: float) -> None:
        """Add a part. Parts that are due at the same time are drawn in the order in which they were added."""
        self._parts[name] = Part(name, interval)

    @property
    def stretch(self) -> float:
        """The factor by which the budget lengthens every interval, from 1 to `MAX_STRETCH`."""
        if self._budget <= 0:
            return 1.0
        load = (self._idle_cost or 0.0) / self._tick + sum(part.cost / part.interval for part in self._parts.values())
        return min(MAX_STRETCH, max(1.0, load / self._budget))

    @property
    def delay(self) -> float:
        """Seconds from one tick to the next, at most `MAX_TICK`."""
        return min(MAX_TICK, self._tick * self.stretch)

    def touched(self) -> None:
        """Record that the user did something. Its CPU time counts towards `share`, but not towards the cost of a part."""
        self._touched = True

    def expedite(self, *names: str) -> None:
        """Make parts due at the next tick, regardless of the stretched intervals."""
        for name in names:
            self._parts[name].due = 0.0
        self._due = 0.0

    def poll_often(self) -> None:
        """Run every tick for `OFTEN_SECONDS`, because the user waits for an answer. Parts are not redrawn more often."""
        self._often_until = self._wall() + OFTEN_SECONDS
        self._due = 0.0

    def begin(self) -> bool:
        """Start a tick and account for the time since the last one. Return False if the next tick is not due yet."""
        wall = self._wall()
        if wall < self._due:
            return False
        cpu = self._cpu()
        if self._last is not None:
            self._account(wall - self._last[0], cpu - self._last[1])
        self._last = wall, cpu
        self._touched, self._drawn = False, None
        # A tick that comes slightly early must count, because the caller calls at fixed times.
        delay = self._tick if wall < self._often_until else self.delay
        self._due = wall + delay - self._tick / 2
        return True

    def _account(self, elapsed: float, spent: float) -> None:
        if elapsed <= 0:
            return
        weight, now = min(1.0, elapsed / _SHARE_SECONDS), spent / elapsed
        self.share = now if self.share is None else self.share + weight * (now - self.share)
        if self._touched:
            return
        part = self._drawn
        # The cheapest tick gives the cost of a tick that draws nothing but the header.
        idle = min(spent, _DEAR if self._idle_cost is None else self._idle_cost)
        if part is None:
            self._idle_cost = idle + _SMOOTHING * (min(spent, _DEAR) - idle)
            return
        self._idle_cost = idle
        # One expensive redraw (a first model, a garbage collection) must not slow the screen for long.
        own = min(spent - idle, max(_DEAR, 3 * part.cost))
        part.cost = own if part.cost == 0 else part.cost + _SMOOTHING * (own - part.cost)

    def choose(self, visible: Iterable[str]) -> str | None:
        """Return the visible part that has been due for longest and count it as drawn now; None if no part is due."""
        now = self._wall()
        waiting = [self._parts[name] for name in visible if self._parts[name].due <= now]
        if not waiting:
            return None
        part = min(waiting, key=lambda part: part.due)
        part.due = now + part.interval * self.stretch
        self._drawn = part
        return part.name
