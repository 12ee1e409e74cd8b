"""Apply the entries of a schedule that are due, and stop a run that cannot follow it. Training thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.probe.runtime import CommandRefused, NothingToDo, RunStopped, TargetGone, ranks
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import Command, TraceStep
from gradtui.protocol.events import ScheduleNoted
from gradtui.run.text import command_text


class ScheduleReplay:
    """Replays a schedule.

    Args:
        context: the parts of the probe.
        crossing: the boundary that is crossed.
        carry_out: carries out a command at this boundary and answers it; returns why it was refused.
        refresh: lists the models as they are now.
        ranks_agree: whether all ranks have the same schedule.
    """

    def __init__(
        self,
        context: ProbeContext,
        crossing: Crossing,
        carry_out: Callable[[Command], CommandRefused | None],
        refresh: Callable[[], None],
        *,
        ranks_agree: bool,
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self._crossing, self._carry_out, self.refresh = crossing, carry_out, refresh
        self.ranks_agree = ranks_agree
        self._gave_up = False

    def apply_due(self, schedule: ReplayedSchedule) -> None:
        """Apply the entries that are due. Raises `RunStopped` if one cannot be applied: the result would be of no use."""
        if schedule.unchecked:
            self.refuse_on_several_ranks(schedule)
            self.refresh()
            if self._view.tree.parameters and (objection := schedule.objection(self._view.tree)) is not None:
                self.give_up(objection)
        while (entry := schedule.take(self._crossing.step, self._counter.left_out)) is not None:
            refusal = self._carry_out(entry.command)
            # The recorded session refused this command too, and the user repeated it. Schedules record applied commands
            # only.
            while isinstance(refusal, TargetGone):
                refusal = self._carry_out(entry.command)
            # A run whose memory cannot be profiled is the same run.
            is_same = isinstance(refusal, NothingToDo) or isinstance(entry.command, TraceStep)
            if refusal is not None and not is_same:
                self.give_up(f"{entry.title}: cannot {command_text(entry.command)}: {refusal}")

    def refuse_on_several_ranks(self, schedule: ReplayedSchedule) -> None:
        """Stop the run if it is one of several ranks, and these entries are not for one of them."""
        left = [entry.command for entry in schedule.left]
        reason = ranks.objection_to_schedule(left, is_agreed=self.ranks_agree)
        if reason is not None:
            self.give_up(reason)

    def give_up(self, reason: str) -> NoReturn:
        """Stop the run, with the reason in words."""
        self._gave_up = True
        when = f"after step {self._crossing.step:,}" if self._crossing.step else "before its first step"
        text = f"{reason}; the run was stopped {when}"
        self._emit(ScheduleNoted(self._clock.at(), self._crossing.step, text, True))
        raise RunStopped(exit_code=2)

    def finish(self, schedule: ReplayedSchedule, step: int) -> None:
        """Emit which entries the run has not reached."""
        if schedule.left and not self._gave_up:
            self._emit(ScheduleNoted(self._clock.at(), step, schedule.unreached_text(step), False))
