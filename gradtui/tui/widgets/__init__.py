"""Widgets that any panel may use.

This package owns views of lines, the footer, the line with messages, and stacked bars.
"""

from gradtui.tui.widgets.kept_strips import KeptContainer, KeptStrips
from gradtui.tui.widgets.key_bar import KeyBar
from gradtui.tui.widgets.line_view import FollowedLines, LineView, ScrollLines, guarded
from gradtui.tui.widgets.stacked_bar import FULL, stacked_bar
from gradtui.tui.widgets.status_line import Severity, Status, StatusLine, StatusMessage, StatusMessages, message_line

__all__ = [
    "FULL",
    "FollowedLines",
    "KeptContainer",
    "KeptStrips",
    "KeyBar",
    "LineView",
    "ScrollLines",
    "Severity",
    "Status",
    "StatusLine",
    "StatusMessage",
    "StatusMessages",
    "guarded",
    "message_line",
    "stacked_bar",
]
