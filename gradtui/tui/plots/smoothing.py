"""A curve made smooth: an exponential moving average that hides nothing. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEVELS = (0.0, 0.6, 0.9, 0.97)
"""Shares of the average that stay at each point; 0 is no smoothing."""


def next_level(level: float) -> float:
    """The level after this one, round and round."""
    return LEVELS[(LEVELS.index(level) + 1) % len(LEVELS)] if level in LEVELS else LEVELS[0]


def smoothed(values: Sequence[float | None], level: float) -> list[float | None]:
    """The average at each point, without the pull towards zero that the first ones would have.

    What is not finite, and what is not known, stays as it is and where it is, and does not count in the average.
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
