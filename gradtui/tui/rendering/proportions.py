"""The division of the screen. Does not import Textual, since the script's output is fitted to it before the screen is up."""

from __future__ import annotations

_WIDE, _HIGH = 100, 30


def is_wide(columns: int, rows: int) -> bool:
    """Whether memory and gradients are beside the tree, and output or events below; three panels also need enough rows."""
    return columns >= _WIDE and rows >= _HIGH


def output_columns(columns: int, rows: int) -> int:
    """Return the cells of a line of the output panel on a terminal of this size: the width to report to progress bars."""
    panel = columns if is_wide(columns, rows) else columns - columns // 2
    frame_padding_and_thumb = 5
    return max(10, panel - frame_padding_and_thumb)
