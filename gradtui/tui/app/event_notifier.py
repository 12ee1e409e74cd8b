"""Notifies the user about events as they arrive, and updates the dialogs that depend on them. UI thread."""

from __future__ import annotations

from textual.app import App

from gradtui.protocol.commands import TraceStep
from gradtui.protocol.events import CommandRejected, Event, RunEnded
from gradtui.state.run_state import RunState
from gradtui.tui.explanations.announcements import announcement
from gradtui.tui.screens.dashboard import Dashboard


class EventNotifier:
    """Turns events into notifications and dialog changes."""

    def __init__(self, app: App[str], state: RunState, dashboard: Dashboard) -> None:
        self._app, self._state, self._dashboard = app, state, dashboard

    def announce(self, event: Event) -> None:
        """Notify the user about an event that was just applied, if needed, and update the dialogs that depend on it."""
        if isinstance(event, CommandRejected):
            if isinstance(event.command, TraceStep):
                self._close_step_dialog()
        elif isinstance(event, RunEnded):
            self._change_leave_dialog()
            if event.error is not None:
                self._dashboard.show_panel("output")
        said = announcement(self._state, event)
        if said is None or (said.severity == "information" and self._reads_events):
            return
        self._app.notify(said.text, title=said.title, severity=said.severity, timeout=8, markup=False)

    @property
    def _reads_events(self) -> bool:
        """Whether the newest event lines are visible. A notification would cover the line with the same text."""
        return self._app.screen is self._dashboard and self._dashboard.shows_newest_events

    def _close_step_dialog(self) -> None:
        """Close the step dialog, because the memory profile it waits for will not arrive."""
        from gradtui.tui.screens.step import StepDialog

        if isinstance(self._app.screen, StepDialog):
            self._app.pop_screen()

    def _change_leave_dialog(self) -> None:
        """Update an open leave dialog after the run has ended."""
        from gradtui.tui.screens.leave import LeaveDialog

        for screen in self._app.screen_stack:
            if isinstance(screen, LeaveDialog):
                screen.run_ended()
