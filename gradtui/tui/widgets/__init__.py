"""Widgets that any panel may use.

This package owns views of lines, the footer and stacked bars.
"""

from gradtui.tui.widgets.key_bar import KeyBar
from gradtui.tui.widgets.line_view import FollowedLines, LineView, ScrollLines, guarded
from gradtui.tui.widgets.stacked_bar import FULL, stacked_bar

__all__ = [
    "FULL",
    "FollowedLines",
    "KeyBar",
    "LineView",
    "ScrollLines",
    "guarded",
    "stacked_bar",
]
