"""The dialogs of the app: opening them, updating their text, and leaving the app. UI thread.

Each dialog is imported when it first opens, so that the first paint does not wait for the import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from gradtui.protocol.commands import Resume, StopTraining
from gradtui.state.reconciliation import reconcile
from gradtui.state.run_state import RunState
from gradtui.state.selectors import RunStatus, run_status
from gradtui.transport.channel import CommandSink
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.requests import requests
from gradtui.tui.screens.dashboard import Dashboard
from gradtui.tui.screens.text_dialog import TextDialog

if TYPE_CHECKING:
    from gradtui.tui.screens.leave import Answer

_RUNS = (RunStatus.RUNNING, RunStatus.LOADING, RunStatus.RESUMING)


class DialogsApp(App[str]):
    """The part of the app with the actions `trace_step`, `explain`, `help` and `leave`."""

    run_state: RunState
    _sink: CommandSink
    _dashboard: Dashboard
    _pictures: Pictures

    def request(self, made: requests.Make | requests.Refusal) -> None:
        """Send a command, or notify the user why it was refused."""
        raise NotImplementedError

    def close_step_dialog(self) -> None:
        """Close the step dialog, because the memory profile it waits for will not arrive."""
        from gradtui.tui.screens.step import StepDialog

        if isinstance(self.screen, StepDialog):
            self.pop_screen()

    def action_trace_step(self) -> None:
        from gradtui.tui.screens.step import StepDialog

        if self.run_state.ended is None or self.run_state.traced is None:
            self.request(requests.command_for("trace_step", self.run_state, None))
        if self.run_state.ended is None or self.run_state.traced is not None:
            self.push_screen(StepDialog(self.run_state, self._pictures))

    def action_explain(self) -> None:
        if self._dashboard.memory.has_focus and reconcile(self.run_state.device) is not None:
            from gradtui.tui.screens.device import DeviceDialog

            self.push_screen(DeviceDialog(self.run_state, colour=not self.no_color))
            return
        row = self._dashboard.tree_view.current
        if row is not None:
            from gradtui.tui.screens.detail import DetailDialog

            follow = requests.follow_gradient(self.run_state, row)
            if follow is not None:
                self.request(follow)
            self.push_screen(DetailDialog(self.run_state, row))

    def action_help(self) -> None:
        from gradtui.tui.screens.help import help_dialog

        self.push_screen(help_dialog())

    def action_leave(self) -> None:
        from gradtui.tui.screens.leave import LeaveDialog

        if self.run_state.ended is not None:
            self.exit("ended")
        elif not isinstance(self.screen, LeaveDialog):
            self.push_screen(LeaveDialog(), self._leave)

    def change_leave_dialog(self) -> None:
        """Update an open leave dialog after the run has ended."""
        from gradtui.tui.screens.leave import LeaveDialog

        for screen in self.screen_stack:
            if isinstance(screen, LeaveDialog):
                screen.run_ended()

    def _leave(self, answer: Answer | None) -> None:
        if answer is None:
            return
        if self.run_state.ended is not None:
            self.exit("ended")
            return
        if answer == "stop":
            self.run_state.note_submitted(self._sink.submit(StopTraining))
        elif run_status(self.run_state) not in _RUNS:
            # Without the screen, the user could not resume a paused run.
            self.run_state.note_submitted(self._sink.submit(Resume))
        self.exit(answer)

    def _draw_dialog(self) -> None:
        if isinstance(self.screen, TextDialog) and self.screen.changes:
            self.screen.update()
