from __future__ import annotations

import pytest
from helpers.lines import texts
from plot_cases import curve

from gradtui.tui.charts import braille
from gradtui.tui.charts.frame import compose, legend, without_start
from gradtui.tui.charts.plotter import Plotter
from gradtui.tui.charts.request import LEGEND, PLAIN, Line, PlotRequest, Series, VerticalLine
from gradtui.tui.charts.sanitise import sanitise


def test_the_legend_is_at_the_right() -> None:
    series = (curve(1.0), curve(2.0, label=""), curve(2.0, label="ctx", color="red"))
    assert legend(PlotRequest(40, 10, series)) == (
        (" " * 23, PLAIN),
        ("──", "cyan"),
        (" global", LEGEND),
        ("  ", PLAIN),
        ("──", "red"),
        (" ctx", LEGEND),
    )


def test_what_does_not_fit_the_legend_is_counted() -> None:
    request = PlotRequest(30, 10, tuple(curve(1.0, label=f"layer{i}", color=f"c{i}") for i in range(7)))
    assert texts((legend(request),)) == ["  ── layer0  ── layer1  +5".rjust(30)]


@pytest.mark.parametrize("width", range(1, 60))
def test_a_legend_is_as_wide_as_the_picture(width: int) -> None:
    (text,) = texts((legend(PlotRequest(width, 10, (curve(1.0), curve(2.0, label="ctx")))),))
    assert len(text) == width


def test_no_labels_leave_the_row_to_the_canvas() -> None:
    assert sanitise(PlotRequest(60, 10, (curve(1.0, label=""),))).layout.rows == 8
    assert sanitise(PlotRequest(60, 10, (curve(1.0),))).layout.rows == 7


def test_the_axis_name_stands_in_the_margin() -> None:
    request = PlotRequest(30, 8, (curve(1.0, 2.0),), x_label="step")
    chart = sanitise(request)
    body = tuple(((" " * 30, PLAIN),) for _ in range(7))
    assert texts(compose(request, chart, body, "braille").lines)[-1] == "   step" + " " * 23


def test_a_line_without_its_start() -> None:
    assert without_start((("ab", "x"), ("cd", "y"), ("ef", "z")), 3) == (("d", "y"), ("ef", "z"))


VERTICALS = (VerticalLine(3.0, "■", "state-cut", "blocks.7"), VerticalLine(3.2, "!", "warning", "GT204"))


def framed(request: PlotRequest) -> tuple[Line, ...]:
    chart = sanitise(request)
    return compose(request, chart, braille.draw(chart), "braille").lines


def test_vertical_lines_stand_behind_with_words() -> None:
    # 32 columns for the steps from 0 to 16, so two for each; the flat curve lies in the middle of four rows.
    request = PlotRequest(40, 6, (curve(*[1.0] * 17, label=""),), from_zero=False, verticals=VERTICALS)
    rows = texts(framed(request))
    assert rows[0][8:] == "      ■ blocks.7 +1             "
    assert [row[14] for row in rows[1:4]].count("┊") == 2
    assert ("■", "state-cut") in framed(request)[0]


def test_kind_of_vertical_line_is_said() -> None:
    marks = (VerticalLine(0.0, "■", "a", "blocks.7", "freeze"), VerticalLine(10.0, "►", "b", "blocks.7", "unfreeze"))
    request = PlotRequest(40, 6, (curve(*[1.0] * 17, label=""),), verticals=marks)
    assert texts(framed(request))[0][8:] == "■ freeze blocks.7   ► blocks.7  "


def test_words_of_vertical_line_are_cut() -> None:
    beside = (
        VerticalLine(0.0, "■", "a", "blocks.7"),
        VerticalLine(4.0, "►", "b", "blocks.7"),
        VerticalLine(6.0, "◇", "c"),
    )
    request = PlotRequest(40, 6, (curve(*[1.0] * 17, label=""),), verticals=beside)
    assert texts(framed(request))[0][8:] == "■ …ks.7 ►   ◇                   "


def test_many_vertical_lines_have_their_characters_only() -> None:
    many = tuple(VerticalLine(float(step), "η", "a") for step in range(17))
    rows = texts(framed(PlotRequest(40, 6, (curve(*[1.0] * 17, label=""),), verticals=many)))
    assert rows[0].count("η") == 17
    assert "┊" not in "".join(rows)


@pytest.mark.parametrize(
    ("width", "height", "is_shown"), [(60, 12, True), (30, 8, True), (30, 7, False), (3, 12, True)]
)
def test_name_of_y_axis_has_own_row(width: int, height: int, is_shown: bool) -> None:
    series = Series("", "red", (1.0, 2.0), (1.0, 2.0))
    picture = Plotter().picture("a", PlotRequest(width, height, (series,), y_label="‖grad‖"))
    shown = texts(picture.lines)
    assert len(shown) == height
    assert all(len(text) == width for text in shown)
    assert ("‖grad‖"[:width].strip() == shown[0].strip()) is is_shown
