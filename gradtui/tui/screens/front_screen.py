"""What the screens below a dialog have in common: the header, the line of the gravest finding, messages and keys. UI thread."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from gradtui.tui.panels import FindingLine, Header, HeaderState
from gradtui.tui.screens.action_context import ActionContext, open_finding, open_findings_list
from gradtui.tui.widgets import KeyBar, Status, StatusLine


class FrontScreen(Screen[None]):
    """A screen that the application draws part by part.

    Args:
        context: what its actions need.
        has_rows: whether a key of the screen goes to the rows that a finding concerns.
    """

    def __init__(self, context: ActionContext, *, has_rows: bool = False) -> None:
        super().__init__()
        self._action_context, self._state = context, context.state
        self.header = Header(context.state, id="header")
        self.finding = FindingLine(context.state, has_rows=has_rows, id="finding")
        self.keys = KeyBar([], id="keys")
        self._status_line = StatusLine()

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.finding
        yield from self.contents()
        yield self.keys
        yield self._status_line

    def on_mount(self) -> None:
        self.finding.update()
        self.show_keys()

    def contents(self) -> Iterable[Widget]:
        """Return the widgets between the line of the finding and the keys."""
        raise NotImplementedError

    def show_keys(self) -> None:
        """Show the keys that act now."""
        raise NotImplementedError

    def draw_header(self, facts: HeaderState) -> None:
        """Repaint the header, the line of the gravest finding, and the keys, which depend on the run's status."""
        self.header.facts = facts
        self.header.redraw()
        self.finding.update()
        self.show_keys()

    def show_status(self, status: Status | None) -> None:
        """Show a message above the keys, or nothing."""
        self._status_line.show_status(status)

    def show_row(self, row: int | None) -> None:
        """Show a row of the tree, on screens that have one."""

    def action_findings(self) -> None:
        open_findings_list(self.app, self._action_context, self.show_row)

    def on_finding_line_pressed(self, message: FindingLine.Pressed) -> None:
        open_finding(self.app, self._action_context, message.finding, self.show_row)
