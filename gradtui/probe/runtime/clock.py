"""The clock of a run."""

from __future__ import annotations

from time import perf_counter_ns


class RunClock:
    """Reads a monotonic clock, in nanoseconds and in seconds since the run began."""

    def __init__(self) -> None:
        self._origin = perf_counter_ns()

    def count_from(self, origin: int) -> None:
        """Set the start of the run, in nanoseconds of `perf_counter_ns`: a run may begin before its probe is created."""
        self._origin = origin

    def now(self) -> int:
        """Return the time in nanoseconds. Only differences of such times have a meaning."""
        return perf_counter_ns()

    def at(self) -> float:
        """Return the seconds since the run began, as events carry them."""
        return (perf_counter_ns() - self._origin) / 1e9
