"""Format numbers with units."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int, decimals: int = 1) -> str:
    """Format a number of bytes in the largest binary unit that it reaches: `12.3 MiB`; below 1 KiB as a whole number."""
    value, unit = float(size), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.{decimals}f} {_UNITS[unit]}" if unit else f"{size} B"
