"""The base classes of the dialogs. UI thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import ModalScreen, ScreenResultType
from textual.style import Style
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gradtui.tui.rendering import Line, linked_places, place_in, printable
from gradtui.tui.terminal import address_of
from gradtui.tui.widgets import Status, StatusLine

_KEY_WIDTH = 5


def keyed_option(key: str, text: str, id: str | None = None) -> Option:
    """Return an option of a dialog's list that names its key. A text that wraps stays beside the key."""
    columns = Table.grid()
    columns.add_column(width=_KEY_WIDTH)
    columns.add_column()
    columns.add_row(Text(f"{key:>3}", "bold"), Text(text))
    return Option(columns, id=id)


class Dialog(ModalScreen[ScreenResultType]):
    """A box over another screen. Escape, or a click outside the box, closes it without a result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self._status_line = StatusLine()

    def on_mount(self) -> None:
        self.mount(self._status_line)

    def box(self, title: str, keys: str = "", id: str = "question") -> Container:
        """Return the box of a dialog, with a title and with what keys do in it."""
        box = Container(id=id)
        box.border_title, box.border_subtitle = Content.assemble((title, "bold")), Content(keys)
        return box

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


def _with_links(line: Line) -> Content:
    """Return a line as Textual's text, with links where the terminal opens them."""
    styled = []
    for text, role in line:
        place, _ = place_in(role)
        address = address_of(place) if place else None
        styled.append((text, Style(link=address)) if address is not None else text)
    return Content.assemble(*styled)


class ChoiceDialog(Dialog[ScreenResultType]):
    """Notes above a list of answers."""

    keys: ClassVar[str] = ""
    """What keys do in it."""

    def __init__(self, title: str, notes: Iterable[str], directory: str = "") -> None:
        """Show notes, in which a relative `FILE:LINE` is relative to the directory, if there is one."""
        super().__init__()
        self._title, self._notes, self._directory = title, [*notes], directory

    @property
    def answers(self) -> Iterable[Option]:
        """The answers."""
        raise NotImplementedError

    @property
    def first(self) -> int:
        """The index of the answer that is highlighted at first."""
        return 0

    def choose(self, index: int) -> None:
        """Close the dialog with an answer."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with self.box(self._title, self.keys):
            notes = (linked_places(printable(note), "", self._directory) for note in self._notes)
            yield Static(Content("\n").join(map(_with_links, notes)), id="form-notes")
            yield OptionList(*self.answers, id="answers", compact=True)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.highlighted = self.first
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.choose(event.option_index)
