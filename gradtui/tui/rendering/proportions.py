"""How the screen is divided. Known without Textual, since the script's output is fitted to it before the screen is up."""

from __future__ import annotations

_WIDE, _HIGH = 100, 30


def is_wide(columns: int, rows: int) -> bool:
    """Whether memory and gradients stand beside the tree, and output or events below: three panels need their height too."""
    return columns >= _WIDE and rows >= _HIGH


def output_columns(columns: int, rows: int) -> int:
    """Cells of a line of the output panel on a terminal of this size: what progress bars should be told."""
    panel = columns if is_wide(columns, rows) else columns - columns // 2
    frame_padding_and_thumb = 5
    return max(10, panel - frame_padding_and_thumb)
