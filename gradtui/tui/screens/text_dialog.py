"""A dialog of lines over the dashboard, closed by escape. UI thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen

from gradtui.tui.rendering import Line, fit
from gradtui.tui.widgets import FollowedLines, guarded

MakeLines = Callable[[int], Sequence[Line]]
"""The lines of a dialog at a width."""


class DialogLines(FollowedLines):
    """The text of a dialog, from its beginning."""

    class LaidOut(Message):
        """It has another size."""

    def __init__(self, make: MakeLines) -> None:
        super().__init__(id="dialog-lines")
        self.follows = False
        self._make = make
        self._laid_out: tuple[int, Sequence[Line]] = (-1, ())

    def on_resize(self) -> None:
        self.post_message(self.LaidOut())

    def update(self) -> None:
        """Lay the text out anew; only a change of its length costs a layout."""
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
        """Whether all of it is in sight."""
        size = self.content_size
        return self.line_count(size.width - 1) <= size.height

    def line_count(self, width: int) -> int:
        if self._laid_out[0] != width:
            self._laid_out = (width, guarded(lambda: self._make(width)))
        return len(self._laid_out[1])

    def line_at(self, index: int, width: int) -> Line:
        return fit(self._laid_out[1][index], width)

    def scrolled(self, *, at_end: bool) -> None:
        """A dialog follows nothing."""


class TextDialog(ModalScreen[None]):
    """A titled box of lines. `update` lays them out anew, for text that changes while it is open."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "close", "close", show=False)]

    changes: ClassVar[bool] = False
    """Whether the text changes while it is open, so that it is laid out anew at each look."""

    def __init__(self, title: str, make: MakeLines) -> None:
        super().__init__()
        self._title, self._text, self._box = title, DialogLines(make), Container(id="dialog")

    def compose(self) -> ComposeResult:
        with self._box:
            self._box.border_title = Content.assemble((self._title, "bold"))
            yield self._text

    def on_mount(self) -> None:
        self._text.focus()

    def on_dialog_lines_laid_out(self) -> None:
        """Say which keys mean something now."""
        self._box.border_subtitle = Content("esc closes" if self._text.fits else "↑↓ scroll · esc closes")

    def on_click(self, event: events.Click) -> None:
        """A click beside the box closes it."""
        if event.widget is self:
            self.dismiss(None)

    def update(self) -> None:
        """Lay the text out anew."""
        self._text.update()

    def action_close(self) -> None:
        self.dismiss(None)
