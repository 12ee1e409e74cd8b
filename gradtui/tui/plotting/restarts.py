"""When a child that failed may be started again: after a pause that doubles, and not for ever. Pure."""

from __future__ import annotations

MOST_FAILURES = 5
FORGIVEN_AFTER_SECONDS = 600.0
"""A child that worked this long starts the count anew: one hiccup an hour must not end plotext for a run of days."""


class Restarts:
    """Counts failures; times are seconds of any one clock."""

    def __init__(self, first_pause_seconds: float) -> None:
        self._first_pause_seconds = first_pause_seconds
        self._due = 0.0
        self.failures = 0

    @property
    def given_up(self) -> bool:
        """Whether there will be no further start."""
        return self.failures >= MOST_FAILURES

    def due(self, now: float) -> bool:
        """Whether a child may be started."""
        return not self.given_up and (self.failures == 0 or now >= self._due)

    def failed(self, now: float, worked_seconds: float) -> None:
        """Note that a child failed after having worked for so long (0 if it never answered)."""
        self.failures = 1 if worked_seconds > FORGIVEN_AFTER_SECONDS else self.failures + 1
        self._due = now + self._first_pause_seconds * 2 ** (self.failures - 1)
