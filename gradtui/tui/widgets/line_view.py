"""Widgets that draw lines of (text, role) by Textual's Line API. UI thread.

They parse no text, and draw only the lines that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.strip import Strip

from gradtui.tui.rendering import BLANK, Line, Palette, compact, place_in
from gradtui.tui.terminal import address_of
from gradtui.tui.widgets.kept_strips import KeptStrips

_WHEEL_LINES = 3
_MAX_STYLES = 500
"""Styles that a widget keeps: the text of a script may have any number of colours."""
_THUMB, _TRACK = "▐", " "


class LineView(KeptStrips):
    """A widget that shows as many lines as it is high.

    A subclass implements `lines_for(width, height)`; `redraw` calls it and repaints the lines that differ. If it raises, the
    widget shows the error: a broken panel never breaks the screen.
    """

    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: list[Line] = []
        """The lines as last drawn."""
        self._strips: dict[int, Strip] = {}
        self._filtered: dict[int, Strip] = {}
        """The strips as a widget without a frame shows them."""
        self._filtered_width = 0
        self._styles: dict[str, Style] = {}

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        """Return the lines for a content area of this size; lines shorter than `width` are padded when drawn."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The lines as plain text."""
        return "\n".join("".join(text for text, _ in line) for line in self.lines)

    def redraw(self) -> None:
        """Repaint the lines that changed."""
        size = self.content_size
        if not self.is_mounted or size.width <= 0 or size.height <= 0:
            return
        new = guarded(lambda: self.lines_for(size.width, size.height))
        old, self.lines = self.lines, new
        first = None
        for y in range(size.height + 1):
            if y < size.height and _at(new, y) != _at(old, y):
                self._strips.pop(y, None)
                self._filtered.pop(y, None)
                first = y if first is None else first
            elif first is not None:
                # Refresh adjacent lines together, because every step of Textual's refresh handles each region.
                self.refresh(Region(0, first, size.width, y - first))
                first = None

    def show_failure(self, error: Exception) -> None:
        """Show an error instead of the lines, until the next drawing."""
        self.lines = [error_line(error)]
        self._drop_strips()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the strip of one line of the content."""
        strip = self._strips.get(y)
        if strip is None:
            segments = [Segment(text, self._style(role)) for text, role in compact(_at(self.lines, y))]
            strip = Strip(segments).adjust_cell_length(self.content_size.width, self._style(""))
            self._strips[y] = strip
        return strip

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters, without the one for ANSI colours: outside ANSI themes, where it is off, no role has one."""
        return [
            line_filter for line_filter in super().get_line_filters() if not isinstance(line_filter, ANSIToTruecolor)
        ]

    def paint(self, crop: Region) -> list[Strip]:
        """Draw a part of the widget.

        Lines without a frame are drawn without Textual's styles of a line. No style sheet gives a line view an outline, a tint,
        a hatch or an opacity.
        """
        width = self.outer_size.width
        if self.gutter.totals != (0, 0) or (crop.x, crop.width) != (0, width):
            return super().paint(crop)
        if width != self._filtered_width:
            # Textual may paint before it tells the widget its new size.
            self._filtered.clear()
            self._filtered_width = width
        missing = [y for y in crop.line_range if y not in self._filtered]
        if missing:
            filters, background = self.get_line_filters(), self.background_colors[1]
            for y in missing:
                strip = self.render_line(y).adjust_cell_length(width, self._style(""))
                for line_filter in filters:
                    strip = strip.apply_filter(line_filter, background)
                self._filtered[y] = strip
        return [self._filtered[y] for y in crop.line_range]

    def _style(self, role: str) -> Style:
        """Return a role's style; without a background of its own it has the widget's."""
        style = self._styles.get(role)
        if style is None:
            if len(self._styles) > _MAX_STYLES:
                self._styles.clear()
            palette: Palette = self.app.palette  # type: ignore[attr-defined]  # every app of this package has one
            ground = Style(bgcolor=self.background_colors[1].rich_color)
            place, plain = place_in(role)
            style = ground + palette.style(plain)
            if place and (address := address_of(place)) is not None:
                style += Style(link=address)
            self._styles[role] = style
        return style

    def on_resize(self) -> None:
        """Lay out the lines again."""
        self._drop_strips()
        self.redraw()

    def on_show(self) -> None:
        """Draw what changed while the widget was hidden."""
        self.redraw()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        """Drop the cached strips, which have the colours of the old theme."""
        super().notify_style_update()
        self._drop_strips()
        self._styles.clear()

    def _drop_strips(self) -> None:
        self._strips.clear()
        self._filtered.clear()


class ScrollLines(LineView, can_focus=True):
    """More lines than fit, scrolled by keys and wheel, with a scrollbar thumb in the last column.

    The widget scrolls by itself, because every change of a Textual scroll view's virtual size costs a layout of the whole
    screen.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.top = 0
        """Index of the first visible line."""
        self.follows = False
        """Whether the last line stays visible as lines are added."""

    def line_count(self, width: int) -> int:
        """Return the number of lines at this width."""
        raise NotImplementedError

    def line_at(self, index: int, width: int) -> Line:
        """Return line number `index` in exactly `width` cells."""
        raise NotImplementedError

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        room = width - 1
        count = self.line_count(room)
        last_top = max(0, count - height)
        self.top = last_top if self.follows else min(max(0, self.top), last_top)
        visible = [self.line_at(index, room) for index in range(self.top, min(count, self.top + height))]
        if count <= height:
            return visible
        thumb = _thumb(self.top, height, count)
        return [(*line, (_THUMB if y in thumb else _TRACK, "rule")) for y, line in enumerate(visible)]

    def scroll_lines(self, count: int) -> None:
        """Scroll by `count` lines, down if positive."""
        self.scroll_top_to(self.top + count)

    def scroll_top_to(self, top: int) -> None:
        """Make `top` the first visible line, within the limits of the text."""
        size = self.content_size
        last_top = max(0, self.line_count(size.width - 1) - size.height)
        self.top = min(max(0, top), last_top)
        self.scrolled(at_end=self.top >= last_top)
        self.redraw()

    def scrolled(self, *, at_end: bool) -> None:
        """Called when the user has scrolled; for subclasses that follow the end."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-_WHEEL_LINES)


class FollowedLines(ScrollLines):
    """Follows the last line. Scrolling up stops following; scrolling back to the end resumes it."""

    _MOVES: ClassVar[dict[str, Callable[[FollowedLines], int]]] = {
        "up": lambda view: view.top - 1,
        "k": lambda view: view.top - 1,
        "down": lambda view: view.top + 1,
        "j": lambda view: view.top + 1,
        "pageup": lambda view: view.top - max(1, view.content_size.height - 1),
        "pagedown": lambda view: view.top + max(1, view.content_size.height - 1),
        "home": lambda _: 0,
        "end": lambda view: view.line_count(view.content_size.width - 1),
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follows = True

    def on_key(self, event: events.Key) -> None:
        """Scroll by the usual keys. These are not actions, because they have no meaning elsewhere."""
        move = self._MOVES.get(event.key)
        if move is not None:
            event.stop()
            event.prevent_default()
            self.scroll_top_to(move(self))

    def scrolled(self, *, at_end: bool) -> None:
        self.follows = at_end


def error_line(error: Exception) -> Line:
    """Return one line that replaces a panel that could not be drawn."""
    return ((f"this panel failed: {type(error).__name__}: {error}", "error"),)


def guarded(lines: Callable[[], Sequence[Line]]) -> list[Line]:
    """Return the lines, or one line with the error that `lines` raised."""
    try:
        return list(lines())
    except Exception as error:  # noqa: BLE001  # whatever breaks in a panel stays in the panel
        return [error_line(error)]


def _thumb(top: int, height: int, count: int) -> range:
    size = max(1, height * height // count)
    start = min(height - size, top * (height - size) // max(1, count - height))
    return range(start, start + size)


def _at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if 0 <= y < len(lines) else BLANK
