"""The curves of optimizers that step in turns: their colours, and the scale of their losses. Pure.

Losses of different optimizers are not compared. They share an axis where all of them can be read on it, as in most GANs. Else
the axis is that of the first one, and the others are stretched to the same height.
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


def stretched(curves: Sequence[Values], seen: Sequence[Values] | None = None) -> list[Values]:
    """Return the curves with the lowest and the highest value of the first one, if they cannot share an axis.

    `seen` are the parts of the curves that are visible, if these are not all.
    """
    seen = curves if seen is None else seen
    axis = _range(seen[0]) if seen else None
    if axis is None or on_one_axis(seen):
        return [*curves]
    return [curves[0], *(_onto(values, _range(part), axis) for values, part in zip(curves[1:], seen[1:]))]


def _range(values: Values) -> tuple[float, float] | None:
    known = [value for value in values if value is not None and isfinite(value)]
    return (min(known), max(known)) if known else None


def _onto(values: Values, own: tuple[float, float] | None, axis: tuple[float, float]) -> Values:
    if own is None:
        return values
    (low, high), (first, last) = own, axis
    factor = (last - first) / (high - low) if high > low else 0.0
    return [first + (value - low) * factor if value is not None and isfinite(value) else value for value in values]
