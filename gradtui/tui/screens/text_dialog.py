"""A dialog with lines of text over the dashboard, closed by escape. UI thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import ScreenResultType

from gradtui.tui.rendering import Line, fit
from gradtui.tui.screens.dialog import Dialog
from gradtui.tui.widgets import FollowedLines, guarded

MakeLines = Callable[[int], Sequence[Line]]
"""Returns the lines of a dialog at a width."""


class DialogLines(FollowedLines):
    """The scrolling text of a dialog, shown from its beginning."""

    class LaidOut(Message):
        """Posted when the size of the widget or the number of lines has changed."""

    def __init__(self, make: MakeLines) -> None:
        super().__init__(id="dialog-lines")
        self.follows = False
        self._make = make
        self._laid_out: tuple[int, Sequence[Line]] = (-1, ())

    def on_resize(self) -> None:
        self.post_message(self.LaidOut())

    def update(self) -> None:
        """Lay out the text again. Only a change in the number of lines costs a layout of the screen."""
        width, old = self._laid_out
        self._laid_out = (width, guarded(lambda: self._make(width))) if width > 0 else (-1, ())
        if len(self._laid_out[1]) != len(old):
            self.refresh(layout=True)
            self.post_message(self.LaidOut())
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        return self.line_count(width - 1)

    @property
    def fits(self) -> bool:
        """Whether all lines are visible."""
        size = self.content_size
        return self.line_count(size.width - 1) <= size.height

    def line_count(self, width: int) -> int:
        if self._laid_out[0] != width:
            self._laid_out = (width, guarded(lambda: self._make(width)))
        return len(self._laid_out[1])

    def line_at(self, index: int, width: int) -> Line:
        return fit(self._laid_out[1][index], width)

    def scrolled(self, *, at_end: bool) -> None:
        """Do nothing: a dialog does not follow its end."""


class TextDialog(Dialog[ScreenResultType]):
    """A titled box of lines. `update` lays them out again, for text that changes while the dialog is open."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,enter,question_mark", "dismiss", "close", show=False)]

    changes: ClassVar[bool] = False
    """Whether the text changes while the dialog is open, so that the app calls `update` at every tick."""

    def __init__(self, title: str, text: DialogLines) -> None:
        super().__init__()
        self._title, self._text, self._box = title, text, Container(id="dialog")
        self._shown_note: str | None = None

    @property
    def note(self) -> str:
        """What stands beside the title."""
        return ""

    @property
    def keys(self) -> str:
        """What keys do besides those of every dialog."""
        return ""

    def compose(self) -> ComposeResult:
        with self._box:
            self._show_title()
            yield self._text

    def on_mount(self) -> None:
        self._text.focus()

    def on_dialog_lines_laid_out(self) -> None:
        """Show the keys that apply now."""
        words = (self.keys, "" if self._text.fits else "↑↓ scroll", "esc closes")
        self._box.border_subtitle = Content(" · ".join(filter(None, words)))

    def update(self) -> None:
        """Lay out the text again."""
        self._text.update()
        self._show_title()

    def _show_title(self) -> None:
        note = self.note
        # Setting the title redraws the frame, so set it only if it changed.
        if note != self._shown_note:
            self._shown_note = note
            self._box.border_title = Content.assemble(
                (self._title, "bold"), (f"  {note}" if note else "", "$foreground-muted")
            )
