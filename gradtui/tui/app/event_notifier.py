"""Shows messages about events that the user should not miss, and updates the dialogs that depend on them. UI thread."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App
from textual.widgets import Input

from gradtui.protocol import commands
from gradtui.protocol import events as ev
from gradtui.run.state.changes.changes import is_repeated
from gradtui.run.state.run_state import RunState
from gradtui.run.text import counted, nonfinite_text, oom_place, receipt_text, receipt_texts
from gradtui.run.text.return_policies import ended_text
from gradtui.run.text.units import capitalized
from gradtui.tui.screens.dashboard import Dashboard
from gradtui.tui.widgets import Severity, StatusMessage

_ANSWERED = (
    commands.ForgetState,
    commands.KeepState,
    commands.PauseAtBadStep,
    commands.RenameState,
    commands.ReturnToState,
    commands.SaveAllocatorSnapshot,
    commands.SaveBatch,
    commands.SaveCheckpoint,
    commands.SaveState,
    commands.SetCheckpointing,
    commands.SetGroup,
    commands.SetLearningRate,
    commands.SetMode,
    commands.SetRowsTrainable,
    commands.TrainOnly,
    commands.TryChange,
    commands.Undo,
    commands.VerifyFreeze,
    commands.ZeroGradients,
)
"""Commands whose result says more than the screen shows anyway."""


def announcement(state: RunState, event: ev.Event) -> StatusMessage | None:
    """Return the message about an event that was just applied to the state, None if there is none."""
    if isinstance(event, ev.CommandRejected):
        # The log also says which command was refused, which the event alone does not.
        text = next((entry.text for entry in reversed(state.log) if entry.kind == "rejected"), event.reason)
        return StatusMessage(text, "Refused", "warning")
    if isinstance(event, ev.FreezeVerified) and event.moved:
        return StatusMessage(f"{event.moved[0]} moved while frozen", severity="error")
    if isinstance(event, ev.NonFiniteFound) and event.number == 1 and not event.holds:
        words = nonfinite_text(event)
        return StatusMessage(capitalized(words), severity="error")
    if isinstance(event, ev.PauseChanged) and event.reason:
        return StatusMessage(capitalized(event.reason), "Paused", "warning")
    if isinstance(event, ev.ScheduleNoted):
        return StatusMessage(event.text, "Schedule", "error" if event.failed else "warning")
    if isinstance(event, ev.ReceiptTaken):
        if is_repeated(state, state.receipts.get(event.command, event)):
            return None
        made = state.forecast_of.get(event.command)
        severity: Severity = "information" if event.held else "warning"
        shown = counted(state, event)
        return StatusMessage(receipt_text(shown, made), severity=severity, shorter=receipt_texts(shown, made))
    if isinstance(event, ev.CommandApplied) and isinstance(event.command, _ANSWERED):
        return StatusMessage(event.text)
    if isinstance(event, ev.OutOfMemory) and event.categories:
        return StatusMessage(f"{oom_place(event)}; the events list what used it", severity="error")
    return _of_policies(event) or _of_the_shown_rank(state, event)


def _of_policies(event: ev.Event) -> StatusMessage | None:
    return StatusMessage(ended_text(event), severity="error") if isinstance(event, ev.ReturnsEnded) else None


def _of_the_shown_rank(state: RunState, event: ev.Event) -> StatusMessage | None:
    """Return the message that the rank on the screen is gone, while others train."""
    if not isinstance(event, ev.RankLeft) or not event.reason or state.job is None or event.rank != state.job.shown:
        return None
    if not state.job.live:
        return None
    words = f"Rank {event.rank}, which is shown, is gone ({event.reason}): its last state stays on the screen"
    return StatusMessage(words, severity="warning")


class EventNotifier:
    """Turns events into messages and dialog changes."""

    def __init__(
        self,
        app: App[str],
        state: RunState,
        dashboard: Dashboard,
        say: Callable[[StatusMessage | None], None],
        open_end: Callable[[], None],
    ) -> None:
        """Show messages by `say`, where None drops those that are shown, and the end of the run by `open_end`."""
        self._app, self._state, self._dashboard, self._say = app, state, dashboard, say
        self._open_end = open_end
        self._end_is_due = False

    def announce(self, event: ev.Event) -> None:
        """Notify the user about an event that was just applied, if needed, and update the dialogs that depend on it."""
        if isinstance(event, ev.CommandRejected):
            if isinstance(event.command, commands.TraceStep):
                self._close_step_dialog()
        elif isinstance(event, ev.PauseChanged):
            self._change_held_step_dialog(event)
            self._change_try_dialog(event)
        elif isinstance(event, ev.RunEnded) and event is self._state.ended:
            # The end of a rank is not that of the run: others may still train.
            self._change_leave_dialog()
            self._end_is_due = True
            self._change_held_step_dialog(ev.PauseChanged(event.at, event.step, False))
            if event.error is not None:
                self._dashboard.show_panel("output")
        said = announcement(self._state, event) if not self._asks(event) else None
        # The newest line of the events is the same text.
        is_read = self._app.screen is self._dashboard and self._dashboard.shows_newest_events
        if said is None or (said.severity == "information" and is_read):
            return
        self._say(said)

    def _close_step_dialog(self) -> None:
        """Close the step dialog, because the memory profile it waits for will not arrive."""
        from gradtui.tui.screens.detail_dialogs import StepDialog

        if isinstance(self._app.screen, StepDialog):
            self._app.pop_screen()

    def _change_held_step_dialog(self, event: ev.PauseChanged) -> None:
        """Open the dialog that asks what to do with a held optimizer step, unless the user is typing; close it afterwards."""
        from gradtui.tui.screens.held_step import HeldStepDialog

        if isinstance(self._app.screen, HeldStepDialog):
            self._app.pop_screen()
        is_in_front = self._app.screen in (self._dashboard, self._dashboard.above)
        if event.held_step is not None and is_in_front and not isinstance(self._app.focused, Input):
            self._dashboard.action_open("breakpoints")

    def _change_try_dialog(self, event: ev.PauseChanged) -> None:
        """Open the dialog that asks with which side the run continues, unless the user is typing. Close it afterwards."""
        from gradtui.tui.screens.tries import TryDialog

        if isinstance(self._app.screen, TryDialog):
            self._app.pop_screen()
        is_in_front = self._app.screen in (self._dashboard, self._dashboard.above)
        if (
            event.paused
            and self._state.tries.asks is not None
            and is_in_front
            and not isinstance(self._app.focused, Input)
        ):
            self._dashboard.action_ask("try_change")

    def open_end_dialog(self) -> None:
        """Open the dialog at the end of the run, once, as soon as no other dialog is open and the user is not typing."""
        is_in_front = self._app.screen in (self._dashboard, self._dashboard.above)
        if self._end_is_due and is_in_front and not isinstance(self._app.focused, Input):
            self._end_is_due = False
            self._open_end()

    def _asks(self, event: ev.Event) -> bool:
        """Return whether an open dialog says why the run is paused."""
        from gradtui.tui.screens.held_step import HeldStepDialog

        return isinstance(event, ev.PauseChanged) and isinstance(self._app.screen, HeldStepDialog)

    def _change_leave_dialog(self) -> None:
        from gradtui.tui.screens.leave import LeaveDialog

        for screen in self._app.screen_stack:
            if isinstance(screen, LeaveDialog):
                screen.run_ended()
