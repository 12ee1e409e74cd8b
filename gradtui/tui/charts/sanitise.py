"""Makes a chart from a request: every number is finite and inside the canvas, with at most two points per dot column. Pure.

plotext aborts its process on one NaN and rasterises a line before it clips it, so it must get nothing but charts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from math import ceil, isfinite, isnan, log10
from typing import TypeGuard

from gradtui.dataclass import dataclass
from gradtui.tui.charts.chart import (
    LABEL_WIDTH,
    SHORT_LABEL_WIDTH,
    CellTick,
    Chart,
    Curve,
    Layout,
    Mark,
    MarkKind,
    Polyline,
    Vertical,
    curves_above,
    label_start,
    layout_of,
)
from gradtui.tui.charts.request import ALARM, PlotRequest, Scale, Series, Unit, VerticalLine
from gradtui.tui.charts.ticks import MAX, Axis, Tick, linear_axis, log_axis, number_labels, opened, step_axis

DOT_COLUMNS = 2
"""Dots side by side in a braille cell. Points are thinned to two in each such dot column."""

DOT_ROWS = 4

_DENSE = 2
"""Points at most this many dot columns apart are joined: nothing between them could be seen. A longer line between points that
are no neighbours would claim what was not measured."""
_BETWEEN_LANES = 0.25
_ROUNDING = 1e-9
"""In cells: a product such as 0.2 * 20 may be a little less than it should be."""
_BELOW = 1e-6
"""In rows: so far below a lane the values begin of the one under it, where a cell can have the colour of one of them only."""
_MIN_TICKS = 2
_MIN_ROWS_WITH_TICKS = 2
"""Rows of each of several lanes with a y axis."""


@dataclass(frozen=True)
class _Projection:
    lower: float
    scale: float
    first: float
    """The canvas coordinate of `lower`."""
    last: float

    @staticmethod
    def onto(axis: Axis, first: float, last: float) -> _Projection:
        return _Projection(axis.lower, (last - first) / (axis.upper - axis.lower), first, last)

    def project(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return canvas coordinates, clipped to this part of the canvas."""
        lower, scale, first, last = self.lower, self.scale, self.first, self.last
        cells = [first + (value - lower) * scale for value in values]
        # The axis limits include all values, so only a rounding error can lie outside.
        if min(cells) < first or max(cells) > last:
            cells = [min(max(cell, first), last) for cell in cells]
        return tuple(cells)

    def cell(self, value: float) -> int:
        first, last = int(self.first), ceil(self.last) - 1
        return min(max(int(self.first + (value - self.lower) * self.scale + _ROUNDING), first), last)


@dataclass(frozen=True)
class _Samples:
    """A series' points: y at most `MAX` in magnitude, x ascending; on a log scale every y is positive.

    `outliers` are the x and kind of the values that became marks. `gaps` are the x of everything that interrupts the curve
    (outliers and unknown values). Both ascend.
    """

    series: Series
    xs: Sequence[float]
    ys: Sequence[float]
    outliers: list[tuple[float, MarkKind]]
    gaps: list[float]


@dataclass(frozen=True)
class _Lane:
    """A part of the canvas with its own y axis: `rows` rows below row `top`."""

    every: list[_Samples]
    scale: Scale
    unit: Unit
    from_zero: bool
    top: int
    rows: int
    has_ticks: bool = True


def sanitise(request: PlotRequest) -> Chart:
    """Return the chart of a request. Does not raise, whatever the values of the series are."""
    layout = layout_of(request)
    lanes = _lanes(request, layout)
    every = [samples for lane in lanes for samples in lane.every]
    if layout.columns < 1 or layout.rows < 1 or not any(samples.xs or samples.outliers for samples in every):
        return Chart(layout, (), (), (), ())
    x_axis = _x_axis(every, layout, request.x_limits)
    across = _Projection.onto(x_axis, 0, layout.columns)
    marks = tuple(dict.fromkeys(mark for lane in lanes for mark in _marks(lane, across)))
    x_ticks = tuple(_spaced([CellTick(across.cell(tick.value), tick.label) for tick in x_axis.ticks], layout.columns))
    curves: list[Curve] = []
    y_ticks: list[CellTick] = []
    for lane in lanes:
        y_axis = _y_axis(lane, layout)
        if y_axis is not None:
            bottom = layout.rows - lane.top - lane.rows
            # A row of dots between the lanes stays empty.
            top = layout.rows - lane.top - (_BELOW if request.has_lanes and lane.top else 0.0)
            up = _Projection.onto(y_axis, bottom + (_BETWEEN_LANES if bottom else 0.0), top)
            curves += _curves(lane, across, up)
            # In a lane of two rows, ticks may share a row.
            labels = {layout.rows - 1 - up.cell(tick.value): tick.label for tick in y_axis.ticks}
            most = max(layout.labels, SHORT_LABEL_WIDTH)
            y_ticks += [CellTick(cell, label) for cell, label in labels.items() if len(label) <= most]
    return Chart(layout, tuple(curves), marks, x_ticks, tuple(y_ticks), _verticals(request.verticals, across))


def _lanes(request: PlotRequest, layout: Layout) -> list[_Lane]:
    lower = [_samples_of(series, request.y_scale) for series in request.series]
    rows = layout.rows - layout.above
    below = _Lane(lower, request.y_scale, request.unit, request.from_zero, layout.above, rows)
    return [*_upper_lanes(request, layout.above), *([below] if rows > 0 or not layout.above else [])]


def _upper_lanes(request: PlotRequest, rows: int) -> list[_Lane]:
    """Return the lane above, or a lane for each curve above, as far as there are rows for them."""
    curves, scale = [*curves_above(request).values()][:rows], request.above_scale
    count = len(curves)
    has_ticks = count == 1 or rows >= _MIN_ROWS_WITH_TICKS * count
    tops = [rows * number // max(1, count) for number in range(count + 1)]
    return [
        _Lane([_samples_of(series, scale) for series in every], scale, "", False, top, below - top, has_ticks)
        for every, top, below in zip(curves, tops, tops[1:])
    ]


def _verticals(lines: Sequence[VerticalLine], across: _Projection) -> tuple[Vertical, ...]:
    found: dict[int, list[VerticalLine]] = {}
    for line in lines:
        found.setdefault(across.cell(line.x), []).append(line)
    return tuple(_vertical(column, found[column]) for column in sorted(found))


def _vertical(column: int, lines: Sequence[VerticalLine]) -> Vertical:
    first, others = lines[0], len(lines) - 1
    label = f"{first.label} +{others}".lstrip() if others else first.label
    return Vertical(column, first.glyph, first.color, label, first.kind)


def _samples_of(series: Series, scale: Scale) -> _Samples:
    """Separate the points that have a position on the axes from the values that have none on the y axis."""
    smallest = 1 / MAX if scale == "log" else -MAX
    if _all_drawable(series.ys, smallest):
        return _Samples(series, series.xs, series.ys, [], [])
    points: list[tuple[float, float]] = []
    outliers: list[tuple[float, MarkKind]] = []
    gaps: list[float] = []
    for x, y in zip(series.xs, series.ys):
        kind = None if y is None else _kind(y, scale)
        if y is not None and kind is None:
            points.append((x, min(max(y, smallest), MAX)))
            continue
        gaps.append(x)
        if kind is not None:
            outliers.append((x, kind))
    return _Samples(series, [x for x, _ in points], [y for _, y in points], outliers, gaps)


def _all_drawable(ys: Sequence[float | None], smallest: float) -> TypeGuard[Sequence[float]]:
    """Whether the values can be used unchanged, which is the usual case; checked by builtins at the speed of C."""
    try:
        # A sum is finite only if every term is. A sum that overflows sends harmless data the slow way, which is safe too.
        return bool(ys) and isfinite(sum(ys)) and min(ys) >= smallest and max(ys) <= MAX  # type: ignore[arg-type,type-var,operator]
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
    axis = step_axis(min(first for first, _ in ends), max(last for _, last in ends), layout.columns)
    if layout.has_ruler and len(axis.ticks) < _MIN_TICKS:
        # A single step says where the axis is, but not how long.
        limits = (axis.lower, axis.upper)
        labels = number_labels(limits, 1.0, layout.columns // 2)
        return Axis(*limits, tuple(map(Tick, limits, labels)))
    return axis


def _y_axis(lane: _Lane, layout: Layout) -> Axis | None:
    """Return None if no value can be drawn, because an axis without values has no numbers to show."""
    drawable = [samples.ys for samples in lane.every if samples.ys]
    if not drawable:
        return None
    low, high = min(map(min, drawable)), max(map(max, drawable))
    if lane.scale == "log":
        return log_axis(log10(low), log10(high), lane.rows)
    if not lane.has_ticks:
        # The whole height is for the curve.
        return Axis(*opened(low, high), ())
    return linear_axis(low, high, lane.rows, lane.unit, lane.from_zero, layout.labels or LABEL_WIDTH)


def _spaced(ticks: Sequence[CellTick], columns: int) -> Iterator[CellTick]:
    """Yield the x ticks without those whose label, moved in from the edge, would touch the previous one."""
    free = 0
    for tick in ticks:
        start = label_start(tick, columns)
        if start >= free:
            yield tick
            free = start + len(tick.label) + 1


def _marks(lane: _Lane, across: _Projection) -> Iterator[Mark]:
    for samples in lane.every:
        for x, kind in samples.outliers:
            row = lane.top + (0 if kind == "inf" else lane.rows - 1)
            yield Mark(across.cell(x), row, kind, samples.series.color if kind == "nonpositive" else ALARM)


def _curves(lane: _Lane, across: _Projection, up: _Projection) -> list[Curve]:
    curves: list[Curve] = []
    for samples in lane.every:
        if not samples.xs:
            continue
        stretches = []
        for indices in _stretches(samples, across):
            ys: Sequence[float] = [samples.ys[i] for i in indices]
            if lane.scale == "log":
                ys = [log10(y) for y in ys]
            stretches.append(Polyline(across.project([samples.xs[i] for i in indices]), up.project(ys)))
        if samples.series.stride is not None:
            stretches = [line if len(line.xs) > 1 else _block(line, across.last, up.last) for line in stretches]
        curves.append(Curve(samples.series.color, tuple(stretches)))
    return curves


def _block(point: Polyline, most_x: float, most_y: float) -> Polyline:
    """Return an outline of two by two dots in the cell of a point: a single dot is not seen on a line, and a character of a
    whole cell is up to half a row away from the value."""
    column, dot = min(int(point.xs[0]), int(most_x) - 1), int(min(point.ys[0] * DOT_ROWS, most_y * DOT_ROWS - 1))
    low = (dot - (dot % DOT_ROWS == DOT_ROWS - 1) + 0.5) / DOT_ROWS
    high = low + 1 / DOT_ROWS
    return Polyline((column + 0.25, column + 0.25, column + 0.75, column + 0.75), (low, high, high, low))


def _stretches(samples: _Samples, across: _Projection) -> Iterator[list[int]]:
    """Yield the indexes of the points to keep, one list for each stretch of the curve.

    A gap interrupts the curve only if it leaves a column empty: narrower gaps would be invisible, and would cost a line each.
    """
    columns = thinning_columns(samples.xs, across)
    stride = samples.series.stride
    stretch: list[int] = []
    for first, last in _groups(columns):
        free = columns[first] - columns[first - 1] - 1 if stretch else 0
        is_apart = stride is not None and free >= _DENSE and samples.xs[first] - samples.xs[first - 1] > stride
        if is_apart or (free > 0 and _interrupted(samples, first)):
            yield stretch
            stretch = []
        stretch += extremes(samples.ys, first, last)
    yield stretch


def thinning_columns(xs: Sequence[float], across: _Projection) -> list[int]:
    """Return the dot column of each x, ascending like the xs."""
    lower, scale, most = across.lower, across.scale * DOT_COLUMNS, int(across.last) * DOT_COLUMNS - 1
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
