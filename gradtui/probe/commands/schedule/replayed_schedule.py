"""Keep the remaining entries of a schedule, and check that the models have what they name. Training thread only."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gradtui.protocol.commands import Intervention
from gradtui.protocol.schedule import Scheduled
from gradtui.run.state.tree.model_parts import Listing
from gradtui.run.state.tree.selection import NothingSelected, find


class ReplayedSchedule:
    """The entries of a schedule in the order they take effect."""

    def __init__(self, entries: Iterable[Scheduled] = ()) -> None:
        self._left = deque(sorted(entries, key=lambda entry: (entry.step, entry.skipped)))
        self.total = len(self._left)
        self.unchecked = bool(self._left)
        """The paths in the entries have not been checked against the models yet."""

    @property
    def left(self) -> Sequence[Scheduled]:
        """The entries that have not taken effect."""
        return self._left

    def is_due(self, step: int) -> bool:
        """Return whether anything is due after `step` executed steps."""
        return self.unchecked or (bool(self._left) and self._left[0].step <= step)

    def steps_until_due(self, executed: int) -> int:
        """Return how many steps after the one following `executed` end before an entry is due."""
        return self._left[0].step - executed - 1 if self._left else sys.maxsize

    def put_off(self, steps: int) -> None:
        """Add a number of steps to the step of each entry that has not taken effect yet."""
        if steps:
            self._left = deque(replace(entry, step=entry.step + steps) for entry in self._left)

    def take(self, step: int, skipped: int) -> Scheduled | None:
        """Remove and return the next entry if it is due after `step` executed steps, with `skipped` steps left out since."""
        if self._left and (self._left[0].step, self._left[0].skipped) <= (step, skipped):
            return self._left.popleft()
        return None

    def take_first(self, count: int) -> list[Scheduled]:
        """Remove and return the next `count` entries, whenever they are due."""
        return [self._left.popleft() for _ in range(count)]

    def unreached_text(self, step: int) -> str:
        """Return which entries a run that ends at a step has not reached. There are some."""
        count, next_step = f"{len(self._left)} of {self.total} entries", self._left[0].step
        return f"{count} never reached: the run ended at step {step:,}, the next one is for step {next_step:,}"

    def objection(self, tree: Listing) -> str | None:
        """Return why the first entry that names something unknown cannot be applied; None if there is none.

        An entry recorded for models that were found during training (`late`) is not checked before it is due.
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
