"""Notify the user about events as they arrive, and update the dialogs that depend on them. UI thread."""

from __future__ import annotations

from gradtui.protocol.commands import TraceStep
from gradtui.protocol.events import CommandRejected, Event, RunEnded
from gradtui.tui.app.dialogs import DialogsApp
from gradtui.tui.explanations.announcements import announcement


class AnnouncingApp(DialogsApp):
    """The part of the app that turns events into notifications and dialog changes."""

    def announce(self, event: Event) -> None:
        """Notify the user about an event that was just applied, if needed, and update the dialogs that depend on it."""
        if isinstance(event, CommandRejected):
            if isinstance(event.command, TraceStep):
                self.close_step_dialog()
        elif isinstance(event, RunEnded):
            self.change_leave_dialog()
            if event.error is not None:
                self._dashboard.show_panel("output")
        said = announcement(self.run_state, event)
        if said is None or (said.severity == "information" and self._reads_events):
            return
        self.notify(said.text, title=said.title, severity=said.severity, timeout=8, markup=False)

    @property
    def _reads_events(self) -> bool:
        """Whether the newest event lines are visible. A notification would cover the line with the same text."""
        return self.screen is self._dashboard and self._dashboard.shows_newest_events
