"""Cut lines to the width of a terminal, for the output repeated there after the screen is closed. Any thread."""

from __future__ import annotations

import os
import unicodedata


def terminal_width(descriptor: int = 2) -> int | None:
    """Return the columns of the terminal behind a descriptor; None if it is no terminal.

    This does not read the environment: while a screen is up, its COLUMNS are those of a panel."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except (OSError, ValueError):
        return None


def clip(text: str, width: int | None) -> str:
    """Cut a line to at most `width` cells, with an ellipsis at the cut. Without a width, return all of it."""
    if width is None or sum(map(_cells, text)) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…"[:width]


def _cells(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
