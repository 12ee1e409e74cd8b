from __future__ import annotations

import math

import pytest
from plot_cases import curve, texts
from rich.cells import cell_len

from gradtui.tui.charts.frame import compose, fitted, header, without_start
from gradtui.tui.charts.request import LEGEND, PLAIN, TITLE, PlotRequest
from gradtui.tui.charts.sanitise import sanitise


def header_text(request: PlotRequest) -> str:
    return "".join(text for text, _ in header(request, sanitise(request)))


def test_title_left_and_legend_right() -> None:
    request = PlotRequest(40, 10, (curve(1.0), curve(2.0, label="ctx", color="red")), title="norm")
    assert header(request, sanitise(request)) == (
        ("norm", TITLE),
        (" " * 19, PLAIN),
        ("──", "cyan"),
        (" global", LEGEND),
        ("  ", PLAIN),
        ("──", "red"),
        (" ctx", LEGEND),
    )


def test_marks_are_explained_while_they_are_there() -> None:
    assert "× NaN  ▲ +Inf" in header_text(PlotRequest(60, 10, (curve(1.0, math.nan, math.inf),)))
    assert "NaN" not in header_text(PlotRequest(60, 10, (curve(1.0, 2.0),)))


def test_what_does_not_fit_the_legend_is_counted() -> None:
    request = PlotRequest(30, 10, tuple(curve(1.0, label=f"layer{i}", color=f"c{i}") for i in range(7)))
    assert header_text(request) == "  ── layer0  ── layer1  +5".rjust(30)[:30]


@pytest.mark.parametrize("width", range(1, 60))
def test_a_header_is_as_wide_as_the_picture(width: int) -> None:
    request = PlotRequest(width, 10, (curve(1.0), curve(2.0, label="漢字")), title="題名 of the plot")
    assert cell_len(header_text(request)) == width


def test_no_title_and_no_labels_leave_the_row_to_the_canvas() -> None:
    assert sanitise(PlotRequest(60, 10, (curve(1.0, label=""),))).layout.rows == 8
    assert sanitise(PlotRequest(60, 10, (curve(1.0),))).layout.rows == 7


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("global", 6, "global"),
        ("global", 5, "glob…"),
        ("global", 1, "…"),
        ("global", 0, ""),
        ("a\x1b[31m\nb", 20, "a [31m b"),
        ("漢字漢字", 5, "漢字…"),
        ("漢字漢字", 4, "漢…"),
    ],
)
def test_text_is_cut_by_cells_and_cleaned(text: str, width: int, expected: str) -> None:
    assert fitted(text, width) == expected


def test_the_axis_name_stands_in_the_margin() -> None:
    request = PlotRequest(30, 8, (curve(1.0, 2.0),), x_label="step")
    chart = sanitise(request)
    body = tuple(((" " * 30, PLAIN),) for _ in range(7))
    assert texts(compose(request, chart, body, "braille").lines)[-1] == "   step" + " " * 23


def test_a_line_without_its_start() -> None:
    assert without_start((("ab", "x"), ("cd", "y"), ("ef", "z")), 3) == (("d", "y"), ("ef", "z"))
