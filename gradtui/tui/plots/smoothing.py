"""Smooths a curve by an exponential moving average that keeps unknown and non-finite values. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEVELS = (0.0, 0.6, 0.9, 0.97)
"""Decay factors of the average; 0 means no smoothing."""


def next_level(level: float) -> float:
    """Return the next level, cyclically."""
    return LEVELS[(LEVELS.index(level) + 1) % len(LEVELS)] if level in LEVELS else LEVELS[0]


def smoothed(values: Sequence[float | None], level: float) -> list[float | None]:
    """Return the exponential moving average at each point, corrected for the bias of the first points towards zero.

    Values that are not finite or unknown stay unchanged in their position, and do not count in the average.
    """
    if level <= 0:
        return list(values)
    average, weight = 0.0, 0.0
    result: list[float | None] = []
    for value in values:
        if value is None or not math.isfinite(value):
            result.append(value)
            continue
        average = level * average + (1 - level) * value
        weight = level * weight + (1 - level)
        result.append(average / weight)
    return result
