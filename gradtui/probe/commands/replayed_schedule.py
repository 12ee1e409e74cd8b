"""The entries of a schedule that are still to come, and whether what they name is there. Training thread only."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence

from gradtui.protocol.commands import Intervention
from gradtui.protocol.schedule import Scheduled
from gradtui.state.model_parts import Listing
from gradtui.state.selection import NothingSelected, find


class ReplayedSchedule:
    """A schedule's entries in the order they take effect."""

    def __init__(self, entries: Iterable[Scheduled] = ()) -> None:
        self._left = deque(sorted(entries, key=lambda entry: (entry.step, entry.skipped)))
        self.total = len(self._left)
        self.unchecked = bool(self._left)
        """Nobody has looked yet whether what the entries name is there."""

    @property
    def left(self) -> Sequence[Scheduled]:
        """The entries that have not taken effect."""
        return self._left

    def is_due(self, step: int) -> bool:
        """Whether there is something to do after so many executed steps."""
        return self.unchecked or (bool(self._left) and self._left[0].step <= step)

    def steps_until_due(self, executed: int) -> int:
        """How many steps after the one that follows `executed` ones end before anything is due."""
        return self._left[0].step - executed - 1 if self._left else sys.maxsize

    def take(self, step: int, skipped: int) -> Scheduled | None:
        """The next entry that is due after so many executed steps, and so many that were left out since the last of them."""
        if self._left and (self._left[0].step, self._left[0].skipped) <= (step, skipped):
            return self._left.popleft()
        return None

    def take_first(self, count: int) -> list[Scheduled]:
        """The next entries, whenever they are due."""
        return [self._left.popleft() for _ in range(count)]

    def objection(self, tree: Listing) -> str | None:
        """Why the first entry that names something unknown cannot be carried out; None if there is none.

        An entry that was written down of models found during training (`late`) is left to its own time.
        """
        self.unchecked = False
        for entry in self._left:
            selection = getattr(entry.command, "selection", getattr(entry.command, "path", None))
            if entry.late or not isinstance(entry.command, Intervention) or not isinstance(selection, str):
                continue
            try:
                find(selection, tree)
            except NothingSelected as nothing:
                return f"{entry.title}: {nothing}"
        return None
