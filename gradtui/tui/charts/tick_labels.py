"""The text of tick labels: one format for all ticks of an axis, short, within the requested width. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log10

from gradtui.tui.charts.request import Unit

_PLAIN_LENGTH, _PLAIN_SIZE = 5, 10_000
"""Plain numbers up to this length and below this size are preferred to numbers with a suffix."""

_SI = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
# Not from `gradtui.text`, whose import would delay the plot server.
_BINARY = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40), ("PiB", 2.0**50))


def number_labels(values: Sequence[float], step: float, width: int) -> list[str]:
    """Return labels of evenly spaced `values`, `step` apart: plain, else with an SI suffix, else with an exponent.

    A `width` of 6 (7 with negative numbers) is always enough. If it cannot hold the difference, adjacent labels are equal.
    """
    largest = max(map(abs, values), default=0.0)
    candidates: list[list[str]] = []
    if step >= 1e-6 and largest < 1e15:
        candidates = [_decimal(values, step, size, suffix) for suffix, size in _SI if size == 1 or size <= largest]
        if largest < _PLAIN_SIZE and _longest(candidates[0]) <= min(_PLAIN_LENGTH, width):
            return candidates[0]
    candidates.append(_exponential(values, step, width))
    return min(candidates, key=_longest)


def unit_labels(values: Sequence[float], step: float, unit: str, width: int) -> list[str]:
    """Return labels of evenly spaced `values` in `unit` (such as "MiB"), with a shorter unit if `width` requires it."""
    for suffix in (f" {unit}", unit, unit[:1]):
        labels = _decimal(values, step, 1.0, suffix)
        if _longest(labels) <= width:
            return labels
    return number_labels(values, step, width)


def fixed_unit(unit: Unit, largest: float) -> tuple[str, float]:
    """Return the unit in which y values up to `largest` have at most three digits before the point, and its size.

    For plain numbers, and for more bytes than any unit suits, the name is empty and the size 1.
    """
    sizes = _BINARY if unit == "bytes" else ()
    return next(((name, size) for name, size in sizes if largest < 1000 * size), ("", 1.0))


def _decimal(values: Iterable[float], step: float, size: float, suffix: str) -> list[str]:
    decimals = max(0, -floor(log10(step / size) + 1e-9))
    return ["0" if value == 0 else f"{value / size:.{decimals}f}{suffix}" for value in values]


def _exponential(values: Sequence[float], step: float, width: int) -> list[str]:
    largest = max(map(abs, values), default=0.0)
    needed = max(0, floor(log10(largest)) - floor(log10(step) + 1e-9)) if largest > 0 else 0
    for decimals in range(min(needed, width), -1, -1):
        labels = ["0" if value == 0 else _short_exponent(f"{value:.{decimals}e}") for value in values]
        if _longest(labels) <= width:
            return labels
    return labels


def _short_exponent(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def _longest(labels: Sequence[str]) -> int:
    return max(map(len, labels), default=0)
