"""Medians and quartiles of measurements with weights. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.run.state.parts.bounds import Bound

MIN_VALUES = 4
"""Values from which on quartiles are given."""


@dataclass(frozen=True)
class Figure:
    """A value of one run, None if unknown. `low` and `high` are its quartiles, if they are known."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    """Number of measurements it is the median of."""
    bound: Bound = "exact"

    @property
    def is_finite(self) -> bool:
        """Whether it is known, and neither NaN nor infinite."""
        return self.value is not None and math.isfinite(self.value)


def figure_of(weighted: Iterable[tuple[float, float]]) -> Figure:
    """Return median and quartiles of (value, weight); without quartiles if there are few values."""
    values = sorted((value, weight) for value, weight in weighted if weight > 0)
    if not values:
        return Figure()
    median = _quantile(values, 0.5)
    if len(values) < MIN_VALUES:
        return Figure(median, count=len(values))
    return Figure(median, _quantile(values, 0.25), _quantile(values, 0.75), len(values))


def _quantile(values: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least of the sorted values whose weight, with that of all lesser ones, is this share of the whole."""
    wanted = share * math.fsum(weight for _, weight in values)
    reached = 0.0
    for value, weight in values:
        reached += weight
        if reached >= wanted:
            return value
    return values[-1][0]


def do_overlap(a: Figure, b: Figure) -> bool | None:
    """Return whether the ranges between the quartiles have a value in common; None if one is unknown."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None
    return a.low <= b.high and b.low <= a.high
