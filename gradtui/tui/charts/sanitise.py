"""Makes a chart from a request: every number is finite and inside the canvas, with at most two points per dot column. Pure.

plotext aborts its process on one NaN and rasterises a line before it clips it, so it must get nothing but charts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, log10
from typing import TypeGuard

from gradtui.tui.charts.chart import CellTick, Chart, Curve, Layout, Mark, MarkKind, Polyline, label_start, layout_of
from gradtui.tui.charts.request import ALARM, PlotRequest, Scale, Series
from gradtui.tui.charts.ticks import LARGEST, Axis, linear_axis, log_axis, step_axis

DOT_COLUMNS = 2
"""Dots side by side in a braille cell. Points are thinned to two in each such dot column."""


@dataclass(frozen=True)
class _Projection:
    lower: float
    scale: float
    cells: int

    @staticmethod
    def onto(cells: int, axis: Axis) -> _Projection:
        return _Projection(axis.lower, cells / (axis.upper - axis.lower), cells)

    def project(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return canvas coordinates, clipped to the canvas."""
        lower, scale, most = self.lower, self.scale, float(self.cells)
        cells = [(value - lower) * scale for value in values]
        # The axis limits include all values, so only a rounding error can lie outside.
        if min(cells) < 0.0 or max(cells) > most:
            cells = [min(max(cell, 0.0), most) for cell in cells]
        return tuple(cells)

    def cell(self, value: float) -> int:
        return min(max(int((value - self.lower) * self.scale), 0), self.cells - 1)


@dataclass(frozen=True)
class _Samples:
    """A series' points: y at most `LARGEST` in magnitude, x ascending; on a log scale every y is positive.

    `outliers` are the x and kind of the values that became marks. `gaps` are the x of everything that interrupts the curve
    (outliers and unknown values). Both ascend.
    """

    color: str
    xs: Sequence[float]
    ys: Sequence[float]
    outliers: list[tuple[float, MarkKind]]
    gaps: list[float]


def sanitise(request: PlotRequest) -> Chart:
    """Return the chart of a request. Does not raise, whatever the values of the series are."""
    layout = layout_of(request)
    every = [_samples_of(series, request.y_scale) for series in request.series]
    if layout.columns < 1 or layout.rows < 1 or not any(samples.xs or samples.outliers for samples in every):
        return Chart(layout, (), (), (), ())
    x_axis = _x_axis(every, layout, request.x_limits)
    across = _Projection.onto(layout.columns, x_axis)
    marks = tuple(dict.fromkeys(mark for samples in every for mark in _marks(samples, across)))
    x_ticks = tuple(_apart([CellTick(across.cell(tick.value), tick.label) for tick in x_axis.ticks], layout.columns))
    y_axis = _y_axis(every, request, layout)
    if y_axis is None:
        return Chart(layout, (), marks, x_ticks, ())
    up = _Projection.onto(layout.rows, y_axis)
    curves = tuple(_curve(samples, request.y_scale, across, up) for samples in every if samples.xs)
    y_ticks = tuple(CellTick(layout.rows - 1 - up.cell(tick.value), tick.label) for tick in y_axis.ticks)
    return Chart(layout, curves, marks, x_ticks, y_ticks)


def _samples_of(series: Series, scale: Scale) -> _Samples:
    """Separate the points that have a position on the axes from the values that have none on the y axis."""
    smallest = 1 / LARGEST if scale == "log" else -LARGEST
    if _all_drawable(series.ys, smallest):
        return _Samples(series.color, series.xs, series.ys, [], [])
    points: list[tuple[float, float]] = []
    outliers: list[tuple[float, MarkKind]] = []
    gaps: list[float] = []
    for x, y in zip(series.xs, series.ys):
        kind = None if y is None else _kind(y, scale)
        if y is not None and kind is None:
            points.append((x, min(max(y, smallest), LARGEST)))
            continue
        gaps.append(x)
        if kind is not None:
            outliers.append((x, kind))
    return _Samples(series.color, [x for x, _ in points], [y for _, y in points], outliers, gaps)


def _all_drawable(ys: Sequence[float | None], smallest: float) -> TypeGuard[Sequence[float]]:
    """Whether the values can be used unchanged, which is the usual case; checked by builtins at the speed of C."""
    try:
        # A sum is finite only if every term is. A sum that overflows sends harmless data the slow way, which is safe too.
        return bool(ys) and isfinite(sum(ys)) and min(ys) >= smallest and max(ys) <= LARGEST  # type: ignore[arg-type,type-var,operator]
    except TypeError:
        # A value is None.
        return False


def _kind(y: float, scale: Scale) -> MarkKind | None:
    """Return the kind of mark that a value needs, None if it can be drawn."""
    if isnan(y):
        return "nan"
    if not isfinite(y):
        return "inf" if y > 0 else "-inf"
    return "nonpositive" if scale == "log" and y <= 0 else None


def _x_axis(every: Sequence[_Samples], layout: Layout, limits: tuple[float, float] | None) -> Axis:
    ends = [(samples.xs[0], samples.xs[-1]) for samples in every if samples.xs]
    ends += [(samples.outliers[0][0], samples.outliers[-1][0]) for samples in every if samples.outliers]
    if limits is not None:
        ends.append(limits)
    return step_axis(min(first for first, _ in ends), max(last for _, last in ends), layout.columns)


def _y_axis(every: Sequence[_Samples], request: PlotRequest, layout: Layout) -> Axis | None:
    """Return None if no value can be drawn, because an axis without values has no numbers to show."""
    drawable = [samples.ys for samples in every if samples.ys]
    if not drawable:
        return None
    low, high = min(map(min, drawable)), max(map(max, drawable))
    if request.y_scale == "log":
        return log_axis(log10(low), log10(high), layout.rows)
    return linear_axis(low, high, layout.rows, request.unit, request.from_zero)


def _apart(ticks: Sequence[CellTick], columns: int) -> Iterator[CellTick]:
    """Yield the x ticks without those whose label, moved in from the edge, would touch the previous one."""
    free = 0
    for tick in ticks:
        start = label_start(tick, columns)
        if start >= free:
            yield tick
            free = start + len(tick.label) + 1


def _marks(samples: _Samples, across: _Projection) -> Iterator[Mark]:
    for x, kind in samples.outliers:
        yield Mark(across.cell(x), kind, samples.color if kind == "nonpositive" else ALARM)


def _curve(samples: _Samples, scale: Scale, across: _Projection, up: _Projection) -> Curve:
    polylines = []
    for indices in _stretches(samples, across):
        ys: Sequence[float] = [samples.ys[i] for i in indices]
        if scale == "log":
            ys = [log10(y) for y in ys]
        polylines.append(Polyline(across.project([samples.xs[i] for i in indices]), up.project(ys)))
    return Curve(samples.color, tuple(polylines))


def _stretches(samples: _Samples, across: _Projection) -> Iterator[list[int]]:
    """Yield the indexes of the points to keep, one list for each stretch of the curve.

    A gap interrupts the curve only if it leaves a column empty: narrower gaps would be invisible, and would cost a line each.
    """
    columns = thinning_columns(samples.xs, across)
    stretch: list[int] = []
    for first, last in _groups(columns):
        if stretch and columns[first] - columns[first - 1] > 1 and _interrupted(samples, first):
            yield stretch
            stretch = []
        stretch += extremes(samples.ys, first, last)
    yield stretch


def thinning_columns(xs: Sequence[float], across: _Projection) -> list[int]:
    """Return the dot column of each x, ascending like the xs."""
    lower, scale, most = across.lower, across.scale * DOT_COLUMNS, across.cells * DOT_COLUMNS - 1
    columns = [int((x - lower) * scale) for x in xs]
    # Only the right edge, where the last x can lie exactly, is beyond the last column.
    for i in range(bisect_right(columns, most), len(columns)):
        columns[i] = most
    return columns


def _groups(columns: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each run of equal columns."""
    first = 0
    while first < len(columns):
        after = bisect_right(columns, columns[first], first)
        yield first, after - 1
        first = after


def _interrupted(samples: _Samples, index: int) -> bool:
    """Whether a gap lies between the point at `index` and the previous point."""
    gaps = samples.gaps
    return bisect_right(gaps, samples.xs[index - 1]) < bisect_left(gaps, samples.xs[index])


def extremes(ys: Sequence[float], first: int, last: int) -> list[int]:
    """Return the indexes of the smallest and the largest of `ys[first..last]`, in order; all indexes for one or two points."""
    if last - first < 2:
        return list(range(first, last + 1))
    column = ys[first : last + 1]
    low, high = first + column.index(min(column)), first + column.index(max(column))
    return [low] if low == high else sorted((low, high))
