"""How far a long copy is. Training thread only."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

FIRST_S = 1.0
"""A copy that takes less tells nothing of how far it is."""
EVERY_S = 0.5


class CopyProgress:
    """Counts the bytes of a copy.

    Args:
        tell: receives the bytes that are done, when the copy has taken `FIRST_S`, and every `EVERY_S` from then on.
        clock: returns seconds.
    """

    def __init__(self, tell: Callable[[int], None], clock: Callable[[], float] = perf_counter) -> None:
        self._tell, self._clock = tell, clock
        self._due = clock() + FIRST_S
        self.done = 0
        self.has_told = False

    def add(self, nbytes: int) -> None:
        """Count bytes that are copied."""
        self.done += nbytes
        now = self._clock()
        if now >= self._due:
            self._due, self.has_told = now + EVERY_S, True
            self._tell(self.done)
