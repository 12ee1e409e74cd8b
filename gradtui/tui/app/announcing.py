"""What the app does at once about an event, so that the person need not look for it. UI thread."""

from __future__ import annotations

from gradtui.protocol.commands import TraceStep
from gradtui.protocol.events import CommandRejected, Event, RunEnded
from gradtui.tui.app.dialogs import DialogsApp
from gradtui.tui.explanations.announcements import announcement


class AnnouncingApp(DialogsApp):
    """An app of one run that says what happens."""

    def announce(self, event: Event) -> None:
        """Say what an event that was just taken in should not leave to be found."""
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
        """Whether the end of the events is in sight: a notice would lie over the line that says the same."""
        return self.screen is self._dashboard and self._dashboard.shows_newest_events
