"""The dialog that opens once when the run has ended: how it ended, what trained, what was found. UI thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import RunStatus, run_status
from gradtui.run.text.ending import end_rows, ended_words
from gradtui.tui.rendering import LEVEL_ROLES, DetailRow, Line, detail_lines, linked_places, printable
from gradtui.tui.screens.action_context import ActionContext, export_schedule
from gradtui.tui.screens.panel_layout import PanelLayout
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog

_TITLES = {RunStatus.FAILED: "The script failed", RunStatus.INTERRUPTED: "The run was interrupted"}
_TOP, _FOOTER = 1, 1
_OWN_KEYS = {"q", "e", "escape", "enter", "up", "down", "k", "j", "pageup", "pagedown", "home", "end", "ctrl+q"}


def end_lines(state: RunState, width: int) -> Sequence[Line]:
    """Return the rows of the end of a run in lines of at most `width` cells."""
    raised = state.ended.uncaught if state.ended is not None else None
    directory = raised.line.directory if raised is not None and raised.line is not None else ""
    rows = []
    for row in end_rows(state):
        role = LEVEL_ROLES[Level(row.level)] if row.level is not None else "text"
        rows.append(
            DetailRow(row.label, linked_places(printable(row.text), role, directory if row.label == "at" else ""))
        )
    return detail_lines(rows, width)


def end_title(state: RunState) -> str:
    """Say how the run has ended."""
    return _TITLES.get(run_status(state)) or ended_words(state)


class EndDialog(TextDialog[None]):
    """The end of a run, above the output of the script. Keys that it does not know close it and act on the screen below."""

    changes = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q", "app.leave", "leave", show=False),
        Binding("e", "export_schedule", "export the schedule", show=False),
        Binding("enter", "dismiss", "close", show=False),
    ]

    def __init__(self, context: ActionContext) -> None:
        self._action_context = context
        self._version = context.state.version
        super().__init__(end_title(context.state), DialogLines(lambda width: end_lines(context.state, width)))

    @property
    def keys(self) -> str:
        changed = self._action_context.state.intervention_count
        return "q leaves" + (" · e writes a schedule" if changed else "")

    def update(self) -> None:
        """Lay out the text again if anything has come since: the last values of a run may be read after its end."""
        version = self._action_context.state.version
        if version == self._version:
            return
        self._version, title = version, end_title(self._action_context.state)
        if title != self._title:
            self._title, self._shown_note = title, None
        super().update()

    def on_mount(self) -> None:
        self._place()

    def on_resize(self) -> None:
        self._place()

    def _place(self) -> None:
        size = self.app.size
        _, _, below = PanelLayout(size.width, size.height).rows
        self._box.styles.offset = (0, _TOP)
        self._box.styles.max_height = max(5, size.height - _TOP - below - _FOOTER)

    def on_key(self, event: events.Key) -> None:
        if event.key not in _OWN_KEYS:
            event.stop()
            event.prevent_default()
            self.dismiss(None)
            self.app.post_message(events.Key(event.key, event.character))

    def action_export_schedule(self) -> None:
        export_schedule(self.app, self._action_context)
