"""Prepare an optimizer for a saved state that the script loads into it. Runs on the training thread.

A checkpoint that a script saved while an unfreeze was in force names more parameters than the optimizer that a resumed script
creates, and torch refuses to load it. Before the load, gradtui applies the entries of the schedule up to the first after which
each group of the optimizer has as many parameters as in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.probe.commands.schedule.schedule_replay import ScheduleReplay
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import Intervention, SetRowsTrainable, SetTrainable, TakeUpFreezes, TrainOnly, Undo
from gradtui.protocol.events import ScheduleNoted
from gradtui.run.text import refusals
from gradtui.run.text.units import listed, plural

_TOGGLES = (SetTrainable, SetRowsTrainable, TrainOnly, TakeUpFreezes, Undo)
"""The commands that can change which parameters an optimizer has."""


class OptimizerLoading:
    """Makes the parameters of an optimizer those that a saved state has: commands may have added some, or are still to.

    Args:
        context: the parts of the probe.
        crossing: the boundary that is crossed.
        boundary: applies commands.
        replay: refuses a schedule that is not for this rank.
    """

    def __init__(self, context: ProbeContext, crossing: Crossing, boundary: Boundary, replay: ScheduleReplay) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._crossing, self._boundary = crossing, boundary
        self._replay = replay
        self._away = ExitStack()
        """Restores the added parameters that were taken out of an optimizer while it loads a state."""

    def began(self, step: int, optimizer: Optimizer, state: Any, schedule: ReplayedSchedule) -> bool:
        """Prepare for the load of `state`. Return whether entries of the schedule were considered for it."""
        saved, own, joined = _saved_sizes(state), _sizes(optimizer), self._view.joined
        if saved is None or saved == own:
            return False
        if joined and saved == [
            sum(not joined.holds(each) for each in group["params"]) for group in optimizer.param_groups
        ]:
            # It was saved before commands added parameters.
            self._away.enter_context(joined.away(optimizer, self._view.tree, step))
            return False
        if step or len(saved) != len(own) or any(there < here for there, here in zip(saved, own)):
            return False
        self._crossing.begin(step)
        self._replay.refuse_on_several_ranks(schedule)
        self._replay.refresh()
        self._emit(ScheduleNoted(self._clock.at(), step, self._apply_before(schedule, optimizer, saved), False))
        return True

    def ended(self) -> None:
        """Restore the added parameters after the load."""
        self._away.close()

    def _apply_before(self, schedule: ReplayedSchedule, optimizer: Optimizer, saved: list[int]) -> str:
        """Apply the entries that the optimizer needs to load a state of these sizes. Return what was done or why not."""
        own = plural(sum(_sizes(optimizer)), "parameter")
        facts = f"{type(optimizer).__name__} has {own} and the script loads a state of {sum(saved):,}"
        if not schedule.left:
            return (
                f"{facts}: if an unfreeze added the others, run with the schedule that unfroze them (--schedule FILE)"
            )
        counts = self._fitting_counts(schedule, optimizer, saved)
        if len(counts) > 1:
            several = "several entries make it fit, with other parameters each"
            return f"{facts}: {several}; keep those that were applied before the save"
        if not counts:
            return f"{facts}: no entries of the schedule make it fit"
        due = schedule.take_first(counts[0])
        for entry in due:
            if isinstance(entry.command, Intervention):
                self._boundary.carry_out(entry.command, self._crossing.step)
        titles = listed([entry.title or f"the one for step {entry.step:,}" for entry in due])
        left = "; the other entries count the steps of this run" if schedule.left else ""
        return (
            f"{facts}: applied before the load: {titles}{left}. What they unfroze has the weights that the script gave it, "
            "unless the script's checkpoint has them too"
        )

    def _fitting_counts(self, schedule: ReplayedSchedule, optimizer: Optimizer, saved: list[int]) -> list[int]:
        """Return after how many entries the optimizer has the sizes of the checkpoint; one number for each set of parameters.

        Each toggle is applied without an answer, and all are undone afterwards.
        """
        fits: dict[tuple[int, ...], int] = {}
        applied: list[CommandResult] = []
        try:
            for number, entry in enumerate(schedule.left, 1):
                if not isinstance(entry.command, _TOGGLES):
                    continue
                try:
                    if isinstance(entry.command, Undo):
                        _take_back(applied)
                    else:
                        applied.append(self._boundary.apply(entry.command, self._crossing.step))
                except NothingToDo:
                    continue
                except CommandRefused:
                    break
                if _sizes(optimizer) == saved:
                    fits.setdefault(tuple(id(tensor) for tensor in membership.parameters(optimizer)), number)
        finally:
            while applied:
                with suppress(CommandRefused):
                    _take_back(applied)
        return list(fits.values())


def _saved_sizes(state: Any) -> list[int] | None:
    """Return how many parameters each group of a saved state has; None if it is not the state of an optimizer."""
    groups = state.get("param_groups") if isinstance(state, Mapping) else None
    try:
        return [len(group["params"]) for group in groups] if groups is not None else None
    except (TypeError, KeyError):
        return None


def _sizes(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def _take_back(applied: list[CommandResult]) -> None:
    if not applied or (undo := applied.pop().undo) is None:
        raise CommandRefused(refusals.NOTHING_TO_UNDO)
    undo()
