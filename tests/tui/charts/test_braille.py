from __future__ import annotations

import math
import time

from helpers.lines import texts
from hypothesis import given
from hypothesis import strategies as st
from plot_cases import assert_measures, curve, noisy, requests

from gradtui.tui.charts import braille
from gradtui.tui.charts.frame import compose
from gradtui.tui.charts.request import ALARM, AXIS, TICK, Picture, PlotRequest, Series
from gradtui.tui.charts.sanitise import sanitise


def drawn(request: PlotRequest) -> Picture:
    chart = sanitise(request)
    return compose(request, chart, braille.draw(chart), "braille")


@given(requests())
def test_any_request_gives_a_picture_of_its_size(request_: PlotRequest) -> None:
    assert_measures(drawn(request_), request_)


@given(requests(width=st.integers(0, 30), height=st.integers(0, 8)))
def test_the_smallest_sizes_too(request_: PlotRequest) -> None:
    assert_measures(drawn(request_), request_)


def test_a_rising_line_looks_like_one() -> None:
    # 16 columns by 4 rows are 32 by 16 dots: the line rises by one dot every two.
    picture = drawn(PlotRequest(24, 6, (curve(0.0, 1.0, label=""),)))
    assert texts(picture.lines) == [
        "    1.0┤            ⣀⠤⠒⠉",
        "    0.5┤        ⣀⠤⠒⠉    ",
        "       │    ⣀⠤⠒⠉        ",
        "      0┤⣀⠤⠒⠉            ",
        "       └┬──────────────┬",
        "   step 0              1",
    ]


def test_low_chart_has_steps_in_its_axis() -> None:
    low = drawn(PlotRequest(24, 5, (curve(0.0, 1.0, label=""),), x_limits=(0.0, 100.0)))
    assert texts(low.lines)[-1] == "     └0────────50────100"
    narrow = drawn(PlotRequest(15, 3, (curve(0.0, 1.0, label=""),), x_limits=(0.0, 100.0)))
    assert texts(narrow.lines)[-1] == "0───────────100"


def test_every_part_has_its_style() -> None:
    picture = drawn(PlotRequest(40, 8, (curve(1.0, math.nan, 3.0),)))
    keys = [{key for text, key in line if text.strip()} for line in picture.lines]
    assert keys[0] == {"cyan", "legend"}
    assert {"cyan", TICK, AXIS} <= keys[1]
    assert ALARM in keys[5]
    assert keys[6] == {AXIS}
    assert keys[7] == {TICK}


def test_marks_stand_on_the_edge_above_their_step() -> None:
    ys = (1.0, math.nan, math.inf, -math.inf, 0.0, 1.0)
    rows = texts(drawn(PlotRequest(60, 12, (curve(*ys, label=""),), "log")).lines)
    top, bottom = rows[0][8:], rows[-3][8:]
    assert {i: character for i, character in enumerate(top) if character in "▲▼×"} == {20: "▲"}
    assert {i: character for i, character in enumerate(bottom) if character in "▲▼×"} == {10: "×", 31: "▼", 41: "▼"}


def test_a_vertical_jump_is_drawn_without_holes() -> None:
    request = PlotRequest(60, 14, (Series("", "red", (0, 10, 10.01, 20), (0.0, 0.0, 100.0, 100.0)),))
    canvas = [row[8:] for row in texts(drawn(request).lines)[:-2]]
    assert all(row[26] != " " or row[25] != " " for row in canvas)


def test_cell_of_two_curves_shows_dots_of_both() -> None:
    flat, other = curve(0.0, 0.0, label=""), curve(10.0, 10.0, color="red", label="")
    scene = (flat, other, curve(0.0, 0.0, color="green", label=""))
    picture = drawn(PlotRequest(40, 8, scene))
    assert {key for text, key in picture.lines[5] if text.strip()} == {TICK, AXIS, "green"}
    assert {key for text, key in picture.lines[0] if text.strip()} == {TICK, AXIS, "red"}


def test_the_left_margin_stays_when_the_values_change() -> None:
    sizes = [(1e-9, 2e-9), (0.1, 0.2), (1e5, 2e5), (-123456.0, -1.0), (1e99, 1e100)]
    for scale in ("linear", "log"):
        for low, high in sizes:
            rows = texts(drawn(PlotRequest(60, 14, (curve(low, high),), scale)).lines)
            assert {row[7] for row in rows[1:-2]} <= {"│", "┤"}
            assert rows[-2][7] == "└"


def test_five_hundred_points_cost_about_a_millisecond() -> None:
    chart = sanitise(PlotRequest(100, 20, (curve(*noisy(500)),), "log"))
    times = []
    for _ in range(30):
        start = time.thread_time()
        braille.draw(chart)
        times.append(time.thread_time() - start)
    # The target is 1.5 ms; the bound leaves room for a machine half as fast as the slowest we know.
    assert min(times) < 0.003
