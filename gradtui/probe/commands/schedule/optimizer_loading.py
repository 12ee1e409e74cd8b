"""Prepare an optimizer for a saved state that the script loads into it. Runs on the training thread."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.schedule import replayed_schedule
from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.probe.commands.schedule.schedule_replay import ScheduleReplay
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import ScheduleNoted


class OptimizerLoading:
    """Makes the parameters of an optimizer those that a saved state has: commands may have added some, or are still to.

    Args:
        context: the parts of the probe.
        crossing: the boundary that is crossed.
        boundary: applies commands.
        replay: refuses a schedule that is not for this rank.
    """

    def __init__(
        self,
        context: ProbeContext,
        crossing: Crossing,
        boundary: Boundary,
        replay: ScheduleReplay,
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._crossing, self._boundary = crossing, boundary
        self._replay = replay
        self._away = ExitStack()
        """Restores the added parameters that were taken out of an optimizer while it loads a state."""

    def began(self, step: int, optimizer: Optimizer, state: Any, schedule: ReplayedSchedule) -> bool:
        """Prepare for the load of `state`. Return whether entries of the schedule were considered for it."""
        saved = replayed_schedule.saved_sizes(state)
        joined = self._view.joined
        if saved is not None and joined and replayed_schedule.is_of_before(saved, optimizer, joined):
            self._away.enter_context(joined.away(optimizer, self._view.tree, step))
            return False
        if step or saved is None or not replayed_schedule.is_larger(saved, optimizer):
            return False
        self._crossing.begin(step)
        self._replay.refuse_on_several_ranks(schedule)
        self._replay.refresh()
        note = replayed_schedule.apply_before(
            schedule,
            optimizer,
            saved,
            lambda command: self._boundary.apply(command, step),
            lambda command: self._boundary.carry_out(command, step),
        )
        self._emit(ScheduleNoted(self._clock.at(), step, note, False))
        return True

    def ended(self) -> None:
        """Restore the added parameters after the load."""
        self._away.close()
