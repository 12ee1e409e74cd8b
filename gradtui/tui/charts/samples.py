"""Separates a series into finite points, ordered by x, and the values that have no position on the axis. Pure.

Accepts any float, and what Python accepts as one: integers beyond the range of floats, numpy scalars, None.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite, isnan, nan
from operator import le

from gradtui.tui.charts.chart import MarkKind
from gradtui.tui.charts.request import Scale, Series
from gradtui.tui.charts.ticks import LARGEST


@dataclass(frozen=True)
class Samples:
    """A series' points: finite, at most `LARGEST` in magnitude, x ascending; on a log scale every y is positive.

    `outliers` are the x and kind of the values that became marks. `gaps` are the x of everything that interrupts the curve
    (outliers and unknown values). Both ascend.
    """

    color: str
    xs: list[float]
    ys: list[float]
    outliers: list[tuple[float, MarkKind]]
    gaps: list[float]


def samples_of(series: Series, scale: Scale) -> Samples:
    """Separate one series. Points whose x is not finite are dropped; points with equal x keep their order."""
    count = min(len(series.xs), len(series.ys))
    xs, ys = _floats(series.xs[:count]), _floats(series.ys[:count])
    if _all_drawable(xs, ys, scale):
        return Samples(series.color, xs, ys, [], [])
    known_ys = [y is not None for y in series.ys]
    points = [(_clamped(x), y, known) for x, y, known in zip(xs, ys, known_ys) if isfinite(x)]
    points.sort(key=lambda point: point[0])
    good: list[tuple[float, float]] = []
    outliers: list[tuple[float, MarkKind]] = []
    gaps: list[float] = []
    for x, y, known in points:
        kind = _kind(y, scale)
        if kind is None:
            good.append((x, _clamped(y) if scale == "linear" else min(max(y, 1 / LARGEST), LARGEST)))
            continue
        gaps.append(x)
        if known:
            outliers.append((x, kind))
    return Samples(series.color, [x for x, _ in good], [y for _, y in good], outliers, gaps)


def _all_drawable(xs: list[float], ys: list[float], scale: Scale) -> bool:
    """Whether the series can be used unchanged, which is the usual case; checked by builtins at the speed of C."""
    # A sum is finite only if every term is. A sum that overflows sends harmless data the slow way, which is safe too.
    if not xs or not isfinite(sum(xs)) or not isfinite(sum(ys)):
        return False
    smallest = 1 / LARGEST if scale == "log" else -LARGEST
    if min(ys) < smallest or max(ys) > LARGEST or min(xs) < -LARGEST or max(xs) > LARGEST:
        return False
    return all(map(le, xs, islice(xs, 1, None)))


def _floats(values: tuple[float | None, ...]) -> list[float]:
    try:
        return list(map(float, values))  # type: ignore[arg-type]  # a None ends up in the branch below
    except (TypeError, ValueError, OverflowError):
        return [_float(value) for value in values]


def _float(value: float | None) -> float:
    if value is None:
        return nan
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf
    except (TypeError, ValueError):
        return nan


def _clamped(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def _kind(y: float, scale: Scale) -> MarkKind | None:
    """Return the kind of mark that a value needs, None if it can be drawn."""
    if isnan(y):
        return "nan"
    if not isfinite(y):
        return "inf" if y > 0 else "-inf"
    return "nonpositive" if scale == "log" and y <= 0 else None
