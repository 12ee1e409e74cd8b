"""Lines cut to the width of a terminal, for what is repeated there once the screen is closed. Any thread."""

from __future__ import annotations

import os
import unicodedata


def terminal_width(descriptor: int = 2) -> int | None:
    """Columns of the terminal behind a descriptor; None where there is none. The environment is not asked: while a
    screen is up its COLUMNS are those of a panel."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except (OSError, ValueError):
        return None


def clip(text: str, width: int | None) -> str:
    """The beginning of a line in at most `width` cells, with an ellipsis where it was cut; all of it without a width."""
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
