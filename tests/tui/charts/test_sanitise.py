from __future__ import annotations

import itertools
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plot_cases import curve, requests

from gradtui.tui.charts.chart import LABEL_WIDTH, MIN_HEIGHT_WITH_X_AXIS, Chart
from gradtui.tui.charts.request import PlotRequest, Series, VerticalLine
from gradtui.tui.charts.sanitise import sanitise

# 64 canvas columns, so 128 dot columns: with 1025 steps a dot column is exactly 8 steps, in binary fractions.
WIDTH, HEIGHT = 64 + LABEL_WIDTH + 1, 20
DOT_COLUMNS, STEPS_PER_COLUMN = 128, 8


def marks(*ys: float | None, scale: str = "linear") -> list[tuple[int, str]]:
    request = PlotRequest(WIDTH, HEIGHT, (curve(*ys),), scale)  # type: ignore[arg-type]
    return [(mark.column, mark.kind) for mark in sanitise(request).marks]


def points(chart: Chart) -> list[tuple[float, float]]:
    return [point for curve in chart.curves for line in curve.polylines for point in zip(line.xs, line.ys)]


@given(requests())
def test_outgoing_numbers_are_finite_and_inside(request_: PlotRequest) -> None:
    chart = sanitise(request_)
    columns, rows = chart.layout.columns, chart.layout.rows
    for one in chart.curves:
        assert one.polylines
        for line in one.polylines:
            assert 1 <= len(line.xs) == len(line.ys)
            assert list(line.xs) == sorted(line.xs)
            assert all(math.isfinite(x) and 0 <= x <= columns for x in line.xs)
            assert all(math.isfinite(y) and 0 <= y <= rows for y in line.ys)
    assert all(0 <= mark.column < columns for mark in chart.marks)
    assert len(set(chart.marks)) == len(chart.marks)


@given(requests(width=st.integers(24, 130), height=st.integers(6, 40)))
def test_axes_have_separate_fitting_ticks(request_: PlotRequest) -> None:
    chart = sanitise(request_)
    assert bool(chart.y_ticks) == bool(chart.curves)
    assert bool(chart.x_ticks) == bool(chart.curves or chart.marks)
    for ticks, cells in ((chart.x_ticks, chart.layout.columns), (chart.y_ticks, chart.layout.rows)):
        assert len({tick.cell for tick in ticks}) == len(ticks)
        assert all(0 <= tick.cell < cells for tick in ticks)
        assert all(tick.label.strip() for tick in ticks)
    assert all(len(tick.label) <= LABEL_WIDTH for tick in chart.y_ticks)
    for lane in (range(chart.layout.above), range(chart.layout.above, chart.layout.rows)):
        labels = [tick.label for tick in chart.y_ticks if tick.cell in lane]
        assert len(set(labels)) == len(labels)


@given(st.integers())
def test_thinning_keeps_extremes_of_columns(seed: int) -> None:
    random = Random(seed)
    ys = [random.randint(-1000, 1000) for _ in range(DOT_COLUMNS * STEPS_PER_COLUMN + 1)]
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(*ys),)))
    [line] = chart.curves[0].polylines
    lowest, highest = min(ys), max(ys)
    for column in range(DOT_COLUMNS):
        last = column == DOT_COLUMNS - 1
        inside = ys[column * STEPS_PER_COLUMN : None if last else (column + 1) * STEPS_PER_COLUMN]
        kept = [y for x, y in zip(line.xs, line.ys) if min(int(2 * x), DOT_COLUMNS - 1) == column]
        assert len(kept) == (1 if min(inside) == max(inside) else 2)
        # Undo the linear map by the two extremes of the whole, which are kept as well.
        bottom, top = min(line.ys), max(line.ys)
        values = [lowest + (y - bottom) * (highest - lowest) / (top - bottom) for y in kept]
        assert min(values) == pytest.approx(min(inside), abs=1e-6)
        assert max(values) == pytest.approx(max(inside), abs=1e-6)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_a_thin_series_keeps_every_point(ys: list[float]) -> None:
    assert len(points(sanitise(PlotRequest(WIDTH, HEIGHT, (curve(*ys),))))) == len(ys)


def test_a_single_spike_among_thousands_survives() -> None:
    ys = [1.0] * 5000
    ys[3333] = 50.0
    chart = sanitise(PlotRequest(100, 20, (curve(*ys),)))
    high = [(x, y) for x, y in points(chart) if y > chart.layout.rows / 2]
    assert [x for x, _ in high] == pytest.approx([3333 / 4999 * chart.layout.columns])


def test_values_without_place_become_marks() -> None:
    assert marks(1.0, math.nan, math.inf, -math.inf, 2.0) == [(16, "nan"), (32, "inf"), (48, "-inf")]


def test_zero_and_below_are_marks_on_log() -> None:
    assert marks(1.0, 0.0, -2.0, 0.5, 2.0, scale="log") == [(16, "nonpositive"), (32, "nonpositive")]
    assert marks(1.0, 0.0, -2.0, 0.5, 2.0) == []


def test_unknown_value_is_gap_without_mark() -> None:
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(1.0, 2.0, None, None, 2.0, 1.0),)))
    assert chart.marks == ()
    assert [len(line.xs) for line in chart.curves[0].polylines] == [2, 2]


def test_gap_interrupts_curve_where_it_can_be_seen() -> None:
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(1.0, 2.0, math.nan, 2.0, math.inf, 1.0, 3.0),)))
    assert [len(line.xs) for line in chart.curves[0].polylines] == [2, 1, 2]


def test_gap_narrower_than_dot_does_not_cut_curve() -> None:
    ys: list[float] = [1.0, 2.0] * 600
    ys[601] = math.nan
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(*ys),)))
    assert len(chart.curves[0].polylines) == 1
    assert [mark.kind for mark in chart.marks] == ["nan"]


def test_only_marks_show_no_numbers_on_y_axis() -> None:
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(math.nan, math.nan),)))
    assert (chart.curves, chart.y_ticks) == ((), ())
    assert [mark.column for mark in chart.marks] == [0, 63]


def test_empty_series_do_not_widen_axes() -> None:
    full, empty = curve(1.0, 2.0, 3.0), Series("none", "red", (), ())
    alone, together = sanitise(PlotRequest(60, 14, (full,))), sanitise(PlotRequest(60, 14, (full, empty)))
    assert alone == together


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("value", [5e-324, 1e-100, 1.0, 1e100, 1.7e308])
def test_equal_limits_are_opened_around_line(scale: str, value: float) -> None:
    chart = sanitise(PlotRequest(60, 14, (curve(value, value),), scale))  # type: ignore[arg-type]
    assert len({y for _, y in points(chart)}) == 1
    assert all(0 <= y < chart.layout.rows for _, y in points(chart))
    assert chart.y_ticks


def test_a_log_scale_places_powers_of_ten_evenly() -> None:
    [line] = sanitise(PlotRequest(60, 16, (curve(1e-3, 1e-2, 1e-1, 1.0),), "log")).curves[0].polylines
    assert list(line.ys) == pytest.approx([0, 13 / 3, 26 / 3, 13])


@pytest.mark.parametrize("rows", range(8, 40))
def test_equal_ticks_have_equal_rows_between(rows: int) -> None:
    ticks = sanitise(PlotRequest(60, rows, (curve(0.01, 0.66),))).y_ticks
    apart = {below.cell - above.cell for below, above in itertools.pairwise(ticks)}
    assert max(apart, default=0) - min(apart, default=0) <= 1, ticks


def test_two_series_share_the_axes() -> None:
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(0.0, 4.0), curve(4.0, 0.0, color="red", first=1))))
    first, second = (one.polylines[0] for one in chart.curves)
    assert (first.xs, second.xs) == ((0.0, 32.0), (32.0, 64.0))
    assert first.ys[1] == second.ys[0]


def test_x_axis_reaches_and_leaves_none_out() -> None:
    series = (curve(1.0, 2.0, 3.0, first=10),)
    wider = sanitise(PlotRequest(WIDTH, HEIGHT, series, x_limits=(0.0, 64.0)))
    # 64 columns for 64 steps: each step is at the column of its number.
    assert [x for x, _ in points(wider)] == [10, 11, 12]
    narrower = sanitise(PlotRequest(WIDTH, HEIGHT, series, x_limits=(11.0, 11.5)))
    assert points(narrower) == points(sanitise(PlotRequest(WIDTH, HEIGHT, series)))


def test_no_line_joins_points_that_are_no_neighbours() -> None:
    # 128 dot columns for the steps from 0 to 128: one step is one dot.
    steps = (*range(41), 60, 80, 128)
    series = Series("", "red", tuple(map(float, steps)), tuple(float(step) for step in steps), stride=1.0)
    [samples] = sanitise(PlotRequest(WIDTH, HEIGHT, (series,))).curves
    line, *blocks = samples.polylines
    assert (line.xs[0], line.xs[-1], len(line.xs)) == (0.0, 20.0, 41)
    # Two by two dots in the cell of the sample; the last step is the right edge, and the last cell is 63.
    assert [(block.xs[0], block.xs[-1]) for block in blocks] == [(30.25, 30.75), (40.25, 40.75), (63.25, 63.75)]


def test_neighbours_are_joined_however_wide_step_is_drawn() -> None:
    # The steps 1 to 9 and 12, 13 over 128 dot columns: a step is ten dots wide.
    steps = (*range(1, 10), 12.0, 13.0)
    series = Series("", "red", tuple(map(float, steps)), (1.0,) * len(steps), stride=1.0)
    [samples] = sanitise(PlotRequest(WIDTH, HEIGHT, (series,))).curves
    assert [len(line.xs) for line in samples.polylines] == [9, 2]


def test_steps_of_one_of_two_optimizers_are_neighbours() -> None:
    series = Series("", "red", (1.0, 3.0, 5.0, 9.0), (1.0, 2.0, 3.0, 4.0), stride=2.0)
    [samples] = sanitise(PlotRequest(WIDTH, HEIGHT, (series,))).curves
    line, block = samples.polylines
    assert len(line.xs) == 3
    assert block.xs[0] == 63.25


def test_neighbouring_points_are_joined_anyway() -> None:
    """Where every tenth step is measured of a long run, a point a column is all that can be seen."""
    steps = tuple(float(step) for step in range(0, 1281, 10))
    series = Series("", "red", steps, tuple(step % 7 for step in steps), stride=1.0)
    [samples] = sanitise(PlotRequest(WIDTH, HEIGHT, (series,))).curves
    assert len(samples.polylines) == 1


def test_a_series_without_a_stride_stays_one_line() -> None:
    [only] = sanitise(PlotRequest(WIDTH, HEIGHT, (Series("", "red", (0.0, 64.0, 128.0), (1.0, 2.0, 3.0)),))).curves
    assert [len(line.xs) for line in only.polylines] == [3]


def test_two_lanes_share_steps_with_own_scales() -> None:
    upper, lower = curve(0.0, math.nan, 4.0, color="red"), curve(10.0, math.inf, 1000.0)
    chart = sanitise(PlotRequest(WIDTH, 23, (lower,), "log", above=(upper,)))
    # Of 23 rows the legend and the x axis take three.
    assert (chart.layout.rows, chart.layout.above) == (20, 10)
    above, below = ([point for line in one.polylines for point in zip(line.xs, line.ys)] for one in chart.curves)
    assert above == [(0.0, 10.25), (64.0, 20.0)]
    assert below == [(0.0, 0.0), (64.0, 10.0)]
    assert [(mark.kind, mark.row) for mark in chart.marks] == [("nan", 9), ("inf", 10)]


def test_low_chart_has_no_upper_lane() -> None:
    chart = sanitise(PlotRequest(28, 4, (curve(1.0, 2.0, label=""),), above=(curve(5.0, 6.0, label=""),)))
    assert (chart.layout.above, chart.layout.rows, len(chart.curves)) == (0, 3, 1)


def test_low_chart_keeps_y_axis() -> None:
    chart = sanitise(PlotRequest(28, 5, (curve(1.0, 100.0, label=""),), "log", above=(curve(5.0, 6.0, label=""),)))
    assert (chart.layout.framed, chart.layout.labels, chart.layout.columns) == (False, 5, 22)
    assert [tick.label for tick in chart.y_ticks if tick.cell >= chart.layout.above] == ["1", "100"]


def test_vertical_lines_in_one_column_are_one() -> None:
    lines = (
        VerticalLine(64.0, "a", "red", "one"),
        VerticalLine(64.2, "b", "blue", "two"),
        VerticalLine(0.0, "c", "red"),
    )
    chart = sanitise(PlotRequest(WIDTH, HEIGHT, (curve(*[1.0] * 129),), verticals=lines))
    assert [(each.column, each.glyph, each.label) for each in chart.verticals] == [(0, "c", ""), (32, "a", "one +1")]


def with_lanes(rows: int, *colors: str, lower: bool = True) -> PlotRequest:
    """Curves of very different size above, and one below. Low pictures have an x axis of one row, others one of two."""
    above = tuple(
        Series("", color, (1.0, 2.0, 3.0), (size, 2 * size, 3 * size))
        for color, size in zip(colors, (1.0, 1000.0, 1e-6, 1.0))
    )
    below = (Series("", "below", (1.0, 3.0), (1.0, 10.0)),) if lower else ()
    height = rows + 2 if rows + 2 >= MIN_HEIGHT_WITH_X_AXIS else rows + 1
    return PlotRequest(60, height, below, y_scale="log", above=above, has_lanes=True)


def rows_of(chart: Chart, color: str) -> set[int]:
    """The rows of the canvas that a curve touches, from the top."""
    lines = [line for curve in chart.curves if curve.color == color for line in curve.polylines]
    return {chart.layout.rows - 1 - min(int(y), chart.layout.rows - 1) for line in lines for y in line.ys}


def test_curves_without_common_scale_have_lane_each() -> None:
    chart = sanitise(with_lanes(12, "a", "b"))
    # Six rows above, of which each curve has three with an axis of its own.
    assert [
        rows_of(chart, color) <= rows
        for color, rows in (("a", {0, 1, 2}), ("b", {3, 4, 5}), ("below", {*range(6, 12)}))
    ]
    assert all(rows_of(chart, color) for color in ("a", "b", "below"))
    labelled = {tick.cell for tick in chart.y_ticks}
    assert labelled & {0, 1, 2}
    assert labelled & {3, 4, 5}


def test_one_row_has_no_numbers_beside() -> None:
    chart = sanitise(with_lanes(6, "a", "b", "c"))
    assert [rows_of(chart, color) for color in ("a", "b", "c")] == [{0}, {1}, {2}]
    assert rows_of(chart, "below") <= {3, 4, 5}
    assert {tick.cell for tick in chart.y_ticks} <= {3, 4, 5}


def test_few_rows_hold_all_or_nothing() -> None:
    chart = sanitise(with_lanes(4, "a", "b", "c"))
    assert all(rows_of(chart, color) for color in ("a", "b", "c"))
    assert not rows_of(chart, "below")
    chart = sanitise(with_lanes(3, "a", "b", "c", "d", lower=False))
    assert [bool(rows_of(chart, color)) for color in ("a", "b", "c", "d")] == [True, True, True, False]


def test_without_curves_below_they_have_the_whole_height() -> None:
    chart = sanitise(with_lanes(12, "a", "b", lower=False))
    assert rows_of(chart, "a") <= {*range(6)}
    assert rows_of(chart, "b") <= {*range(6, 12)}
    assert max(rows_of(chart, "b")) == 11
