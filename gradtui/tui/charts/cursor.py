"""A cursor over a drawn picture: a column with a background of its own. Pure.

It is no part of a request, so that it moves over the picture that is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.tui.charts.braille import Cell, runs
from gradtui.tui.charts.chart import layout_of
from gradtui.tui.charts.request import TICK, Line, PlotRequest
from gradtui.tui.charts.ticks import step_axis

CURSOR = "accent"
_LINE, _DASH = "│", "┊"
_GROUND = "@cursor"


def columns_of(request: PlotRequest) -> int:
    """Return the number of columns between the axes."""
    return layout_of(request).columns


def cursor_column(request: PlotRequest, x: float) -> int | None:
    """Return the column of `x` between the axes; None if it is not visible. The request must have limits of its x axis."""
    columns, limits = columns_of(request), request.x_limits
    if columns < 1 or limits is None or not limits[0] <= x <= limits[1]:
        return None
    axis = step_axis(*limits, columns)
    return min(int((x - axis.lower) * columns / (axis.upper - axis.lower)), columns - 1)


def x_at(request: PlotRequest, cell: int) -> float | None:
    """Return the x in the middle of a cell of the picture's lines; None beside the canvas, or without limits of the axis."""
    layout, limits = layout_of(request), request.x_limits
    column = cell - layout.margin
    if limits is None or not 0 <= column < layout.columns:
        return None
    axis = step_axis(*limits, layout.columns)
    return axis.lower + (column + 0.5) * (axis.upper - axis.lower) / layout.columns


def with_cursor(lines: Sequence[Line], request: PlotRequest, x: float) -> list[Line]:
    """Return the lines of a picture with the cursor at `x`: a line where the canvas is empty, and a ground behind curves."""
    column, layout = cursor_column(request, x), layout_of(request)
    if column is None:
        return list(lines)
    at, drawn = layout.margin + column, list(lines)
    for row in range(layout.header, layout.header + layout.rows):
        cells: list[Cell] = [(character, key) for text, key in drawn[row] for character in text]
        character, key = cells[at]
        is_empty = character in (" ", _DASH)
        cells[at] = (_LINE, f"{CURSOR}{_GROUND}") if is_empty else (character, f"{key or TICK}{_GROUND}")
        drawn[row] = runs(cells)
    return drawn
