"""Curves over steps. Pure."""

from __future__ import annotations

import math
from functools import cached_property

from gradtui.dataclass import dataclass
from gradtui.run.state.series import Series


@dataclass(frozen=True)
class Curve:
    """A line over steps."""

    name: str
    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    @cached_property
    def points(self) -> tuple[tuple[int, float], ...]:
        """The steps with their values, as far as these are finite."""
        return tuple((step, value) for step, value in zip(self.steps, self.values) if math.isfinite(value))

    @property
    def not_finite(self) -> tuple[int, ...]:
        """The steps of the other values."""
        return tuple(step for step, value in zip(self.steps, self.values) if not math.isfinite(value))


def curve_of(name: str, series: Series) -> Curve:
    """Return a series as a curve."""
    return Curve(name, tuple(series.steps), tuple(series.values))
