"""The base class of the dialogs. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import OptionList

from gradtui.tui.widgets import Status, StatusLine


class Dialog(ModalScreen[ScreenResultType]):
    """A box over another screen. Escape, or a click outside the box, closes it without a result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self._status_line = StatusLine()

    def on_mount(self) -> None:
        self.mount(self._status_line)

    def show_status(self, status: Status | None) -> None:
        """Show a message in the bottom line of the screen, or nothing."""
        self._status_line.show_status(status)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)

    def action_move(self, by: int) -> None:
        """Highlight the next option of the dialog's list, or the one before."""
        options = self.query_one(OptionList)
        if by > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()
