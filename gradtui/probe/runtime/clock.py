"""The run's one clock."""

from __future__ import annotations

from time import perf_counter_ns


class RunClock:
    """Nanoseconds of a monotonic clock, and seconds since the run began."""

    def __init__(self) -> None:
        self._origin = perf_counter_ns()

    def count_from(self, origin: int) -> None:
        """The run began at this moment of `perf_counter_ns`, before the probe came to it."""
        self._origin = origin

    def now(self) -> int:
        """Nanoseconds, comparable only with each other."""
        return perf_counter_ns()

    def at(self) -> float:
        """Seconds since the run began, as events carry them."""
        return (perf_counter_ns() - self._origin) / 1e9
