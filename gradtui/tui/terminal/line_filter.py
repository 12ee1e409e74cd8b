"""Deletes control characters from everything that is drawn, as the last step before the terminal. UI thread.

Panels replace such characters by dots (`printable`), so that columns stay aligned. This filter deletes the rest, in
notifications, dialogs, titles and everything else that Textual's widgets draw.
"""

from __future__ import annotations

from operator import itemgetter

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gradtui.printable import without_controls

_text = itemgetter(0)
"""Returns the text of a segment. A C function, because it runs for every line that is drawn."""


class NoControls(LineFilter):
    """Deletes control characters from drawn segments."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - as Textual calls it
        if "".join(map(_text, segments)).isprintable():
            return segments
        return [Segment(without_controls(text), style, control) for text, style, control in segments]
