"""The curves of optimizers that step in turns: their colours, and the scale of their losses. Pure.

Losses of different optimizers are not compared. They share an axis where all of them can be read on it, as in most GANs. Else
each has a lane of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

ROLES = ("curve-1", "curve-5", "curve-4", "curve-6")
"""By optimizer. An optimizer has one colour for its loss and its norm."""
_LEAST = 0.15
"""The least part of the height of a common axis on which the course of a curve can be read."""

Values = Sequence[float | None]


def on_one_axis(curves: Sequence[Values]) -> bool:
    """Return whether the courses of all losses can be read on a common axis."""
    ranges = [ends for ends in map(_range, curves) if ends is not None]
    if len(ranges) < 2:
        return True
    whole = max(high for _, high in ranges) - min(low for low, _ in ranges)
    # A loss that does not change needs no room.
    return all(high - low >= _LEAST * whole or high == low for low, high in ranges)


def _range(values: Values) -> tuple[float, float] | None:
    known = [value for value in values if value is not None and isfinite(value)]
    return (min(known), max(known)) if known else None
