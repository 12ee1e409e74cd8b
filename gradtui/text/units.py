"""Format numbers with units: in sentences, and in a fixed width for columns. Pure."""

from __future__ import annotations

DASH = "–"
"""A value that is not known."""
BYTES_WIDTH = 8

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int, decimals: int = 1) -> str:
    """Format a number of bytes in the largest binary unit that it reaches: `12.3 MiB`; below 1 KiB as a whole number."""
    value, unit = float(size), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.{decimals}f} {_UNITS[unit]}" if unit else f"{size} B"


def plural(number: int, noun: str) -> str:
    """Format a number of things: `1 step`, `2,000 steps`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def bytes_text(size: int | None) -> str:
    """Format bytes with three digits in powers of 1024, 8 cells: `48.1 MiB`. A negative size has a sign and one digit less."""
    if size is None:
        return DASH.rjust(BYTES_WIDTH)
    limit, value, unit = 999.5 if size >= 0 else 99.5, float(min(abs(size), 10**24)), 0
    while value >= limit and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    if value >= limit:
        return ("≫ EiB" if size > 0 else "≪ EiB").rjust(BYTES_WIDTH)
    if size >= 0:
        number = f"{value:.0f}" if unit == 0 else three_digits(value)
    else:
        number = f"-{value:.0f}" if unit == 0 or value >= 9.95 else f"-{value:.1f}"
    return f"{number:>4} {_UNITS[unit]:<3}"


def short_bytes(size: int | None) -> str:
    """Format bytes with three digits, without padding: `48.1 MiB`."""
    return bytes_text(size).strip()


def three_digits(value: float) -> str:
    """Format a number below 1,000 with three digits."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
