"""A sparkline of eight heights for recent norms. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.tui.rendering.lines import Line, Span, compact

_HEIGHTS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "×"
_MIN_RANGE = 0.3
"""Decades. A curve that changes by less than a factor of two is drawn flat, so that it does not seem to move."""


def sparkline(values: Sequence[float | None], width: int, role: str = "spark") -> Line:
    """Draw the newest `width` values on a log scale of their own range.

    Unknown values are blank, zero is the lowest height, and values that are not finite are marks in the role `error`.
    """
    newest = list(values[-width:]) if width > 0 else []
    if not any(value is not None for value in newest):
        return ((" " * max(0, width), ""),)
    logs = [math.log10(value) for value in newest if value is not None and 0 < value < math.inf]
    low, high = (min(logs), max(logs)) if logs else (0.0, 0.0)
    if high - low < _MIN_RANGE:
        # Slightly off the middle, which lies on the border between two heights.
        low = (high + low) / 2 - 0.55 * _MIN_RANGE
        high = low + _MIN_RANGE
    spans: list[Span] = [(" " * (width - len(newest)), "")] if len(newest) < width else []
    if len(logs) == len(newest):
        # The usual case, kept fast because a tree has a sparkline in each row.
        return (*spans, ("".join([_HEIGHTS[min(7, int((log - low) / (high - low) * 8))] for log in logs]), role))
    return compact((*spans, *(_glyph(value, low, high, role) for value in newest)))


def _glyph(value: float | None, low: float, high: float, role: str) -> Span:
    if value is None:
        return " ", role
    if not math.isfinite(value):
        return _NOT_FINITE, "error"
    if value <= 0:
        return _HEIGHTS[0], role
    return _HEIGHTS[min(7, max(0, int((math.log10(value) - low) / (high - low) * 8)))], role
