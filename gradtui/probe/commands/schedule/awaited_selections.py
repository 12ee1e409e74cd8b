"""Puts off the end of a run, and its schedule, until the models have what a forecast is asked about. Training thread only.

A script may train other models first. A forecast that stopped in its third step would then say that the paths do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.probe.model import ModuleTree
from gradtui.probe.steps import StepCounter
from gradtui.run.state.tree.selection import NothingSelected, find, joined

MAX_STEPS, MAX_SECONDS = 1_000, 120.0
"""The wait ends after so many steps, or so long after the first one."""


class AwaitedSelections:
    """Looks for what the selections name at each step boundary."""

    def __init__(self, selections: Sequence[str], counter: StepCounter, schedule: ReplayedSchedule) -> None:
        self.missing = tuple(part for each in selections for part in joined(each))
        """The selections that name nothing so far, in which commas join several. There is nothing to look for without them."""
        self._counter, self._schedule = counter, schedule
        self._listing = -1
        self._since: float | None = None

    def look(self, executed: int, tree: ModuleTree) -> None:
        """Look again if the models are others, before the step after `executed` steps. Once all is there, count from here."""
        self._since = monotonic() if self._since is None else self._since
        if tree.listing != self._listing:
            self._listing = tree.listing
            self.missing = tuple(each for each in self.missing if not _names_something(each, tree))
        if executed < MAX_STEPS and monotonic() - self._since < MAX_SECONDS:
            self._schedule.put_off(self._counter.put_off(executed))
        else:
            self.missing = ()


def _names_something(selection: str, tree: ModuleTree) -> bool:
    try:
        find(selection, tree)
    except NothingSelected:
        return any(info.path == selection for info in tree.modules)
    return True
