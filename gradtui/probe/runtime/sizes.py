"""Bytes in words, as answers to commands have them. Pure."""

from __future__ import annotations


def size_words(size: int) -> str:
    """A number of bytes in the largest binary unit that it has one of: `12.3 MiB`."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} B"
