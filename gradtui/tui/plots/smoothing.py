"""The moving average of a curve. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite


def smoothed(values: Sequence[float | None], level: float) -> list[float | None]:
    """Return the exponential moving average at each point, corrected for the bias of the first points towards zero.

    Values that are not finite or unknown stay unchanged in their position, and do not count in the average.
    """
    if level <= 0:
        return list(values)
    average, weight = 0.0, 0.0
    result: list[float | None] = []
    for value in values:
        if value is None or not isfinite(value):
            result.append(value)
            continue
        average = level * average + (1 - level) * value
        weight = level * weight + (1 - level)
        result.append(average / weight)
    return result
