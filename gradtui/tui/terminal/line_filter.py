"""The last stop before the terminal: no text of any widget carries a control character past it. UI thread.

Panels replace such characters by dots (`printable`), so that columns stay aligned. What has not been replaced is deleted
here: notices, dialogs, titles, whatever a widget of Textual's draws.
"""

from __future__ import annotations

from operator import itemgetter

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gradtui.printable import without_controls

_text = itemgetter(0)
"""Of a segment. A function in C, for this runs for every line that is drawn."""


class NoControls(LineFilter):
    """Deletes control characters from what is drawn."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - as Textual calls it
        if "".join(map(_text, segments)).isprintable():
            return segments
        return [Segment(without_controls(text), style, control) for text, style, control in segments]
