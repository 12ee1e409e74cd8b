"""The cursor over a drawn picture."""

from __future__ import annotations

import pytest
from helpers.lines import texts

from gradtui.tui.charts.cursor import columns_of, cursor_column, with_cursor, x_at
from gradtui.tui.charts.plotter import Plotter
from gradtui.tui.charts.request import PlotRequest, Series, VerticalLine


def request(width: int = 72, height: int = 12, last: float = 64.0) -> PlotRequest:
    flat = Series("", "red", (0.0, last), (1.0, 1.0))
    lines = (VerticalLine(8.0, "■", "blue", "ctx"),)
    return PlotRequest(width, height, (flat,), y_label="loss", x_limits=(0.0, last), verticals=lines)


def test_the_columns_are_those_of_the_canvas() -> None:
    assert columns_of(request()) == 64
    assert [cursor_column(request(), x) for x in (0.0, 10.0, 63.9, 64.0, 65.0, -1.0)] == [0, 10, 63, 63, None, None]


def test_cell_of_picture_is_place_of_axis() -> None:
    assert x_at(request(), 8) == 0.5
    assert x_at(request(), 71) == 63.5
    assert x_at(request(), 7) is None
    assert x_at(request(), 72) is None
    for x in (0.5, 10.5, 63.5):
        assert cursor_column(request(), x) == x - 0.5


def test_cursor_is_line_on_empty_else_ground() -> None:
    made = request()
    before = Plotter().picture("a", made).lines
    after = with_cursor(before, made, 10.0)
    assert [sum(len(text) for text, _ in line) for line in after] == [72] * 12
    shown = texts(after)
    # The name of the axis above, the axis and its labels below have no cursor.
    assert [number for number, text in enumerate(shown) if text[18] == "│"] != []
    grounds = [[(text, key) for text, key in line if key.endswith("@cursor")] for line in after]
    assert [len(ground) for ground in grounds] == [0, *[1] * 9, 0, 0]
    assert ("red@cursor") in {key for ground in grounds for _, key in ground}


def test_cursor_covers_mark_with_ground_only() -> None:
    made = request()
    after = with_cursor(Plotter().picture("a", made).lines, made, 8.0)
    assert ("■", "blue@cursor") in after[1]


@pytest.mark.parametrize(("width", "height"), [(0, 0), (1, 1), (8, 3), (30, 4)])
def test_no_size_is_too_small(width: int, height: int) -> None:
    made = request(width, height)
    lines = with_cursor(Plotter().picture("a", made).lines, made, 10.0)
    assert all(sum(len(text) for text, _ in line) == width for line in lines)


def test_a_single_step_has_a_column() -> None:
    single = PlotRequest(72, 12, (Series("", "red", (5.0,), (1.0,)),), x_limits=(5.0, 5.0))
    assert cursor_column(single, 5.0) == 0
