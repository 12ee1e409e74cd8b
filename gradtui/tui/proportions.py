"""How the screen is divided. Known without Textual, since the script's output is fitted to it before the screen is up."""

from __future__ import annotations

WIDE = 100
"""Columns from which on memory and gradients stand beside the tree, and output or events below."""


def output_columns(columns: int) -> int:
    """Cells of a line of the output panel on a terminal of this width: what progress bars should be told."""
    panel = columns if columns >= WIDE else columns - columns // 2
    frame_padding_and_thumb = 5
    return max(10, panel - frame_padding_and_thumb)
