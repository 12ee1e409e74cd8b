"""The curves of optimizers that step in turns: their colours, and the scale of their losses. Pure.

Losses of different optimizers are not compared. They share an axis where all of them can be read on it, as in most GANs. Else
each has a lane of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import median

from gradtui.run.state.optimizers.optimizer_turns import ShownOptimizer
from gradtui.tui.charts.request import Scale

ROLES = ("curve-1", "curve-5", "curve-4", "curve-6")
"""By optimizer. An optimizer has one colour for its loss and its norm."""
_MIN_DECLINE = 8.0
"""From this ratio of the first losses to the newest ones on, a linear scale shows the first steps and little else."""
_FIRST_LOSSES = 5
_MIN_SHARE = 0.15
"""The least part of the height of a common axis on which the course of a curve can be read."""

Range = tuple[float, float]
Values = Sequence[float | None]


def on_one_axis(ranges: Iterable[Range | None]) -> bool:
    """Return whether the courses of all losses can be read on a common axis. A range is None where nothing is finite."""
    known = [ends for ends in ranges if ends is not None]
    if len(known) < 2:
        return True
    whole = max(high for _, high in known) - min(low for low, _ in known)
    # A loss that does not change needs no room.
    return all(high - low >= _MIN_SHARE * whole or high == low for low, high in known)


def loss_scale(values: Values) -> Scale:
    """Return the scale on which the course of a loss can be read: log for a positive one that has fallen far.

    The highest of the first values is compared with the median of the newest quarter: neither a rise nor a single value
    later on makes the scale log.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if not known or min(known) <= 0:
        return "linear"
    newest = median(known[-max(1, len(known) // 4) :])
    return "log" if max(known[:_FIRST_LOSSES]) >= _MIN_DECLINE * newest else "linear"


def range_of(values: Values) -> Range | None:
    """Return the lowest and the highest finite value."""
    known = [value for value in values if value is not None and isfinite(value)]
    return (min(known), max(known)) if known else None


def loss_range(optimizer: ShownOptimizer) -> Range | None:
    """Return the lowest and the highest finite loss of an optimizer in the whole run, without going through them."""
    extremes = optimizer.curves.loss_extremes
    if extremes.smallest is None or extremes.largest is None:
        return None
    return extremes.smallest, extremes.largest
