"""Draws a chart in braille dots while plotext has no picture for it. Pure, takes about a millisecond.

A dot column is one integer whose bits are its dots, so that a vertical stroke of any length costs one shift. Its hexadecimal
digits are the half cells of the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, product
from operator import itemgetter

from gradtui.tui.charts.chart import (
    GLYPHS,
    LABEL_WIDTH,
    LONE_POINT,
    CellTick,
    Chart,
    Polyline,
    label_start,
    lone_cell,
)  # fmt: skip
from gradtui.tui.charts.request import AXIS, PLAIN, TICK, Line, Run

DOTS_ACROSS, DOTS_DOWN = 2, 4
_EMPTY = ("0", "0")
_BLANK = (" ", PLAIN)

Cell = tuple[str, str]
"""A character and its style key."""


def draw(chart: Chart) -> tuple[Line, ...]:
    """Return the lines of a chart: canvas, axes and tick labels, without the header."""
    cells = canvas(chart)
    width = chart.layout.labels
    labels = {tick.cell: tick.label for tick in chart.y_ticks}
    lines = [(*_left_of(labels.get(i), width), *runs(row)) if width else runs(row) for i, row in enumerate(cells)]
    below = _below(chart.x_ticks, chart.layout.columns) if chart.layout.framed else ()
    return (*lines, *below, *([_ruler(chart)] if chart.layout.has_ruler else []))


def canvas(chart: Chart) -> list[list[Cell]]:
    """Return the cells between the axes, row by row from the top."""
    columns, rows = chart.layout.columns, chart.layout.rows
    grid: list[list[Cell]] = [[_BLANK] * columns for _ in range(rows)]
    if columns < 1:
        return grid
    dots: list[int] = [0] * (columns * DOTS_ACROSS)
    for curve in chart.curves:
        own = [0] * len(dots)
        for polyline in curve.polylines:
            if len(polyline.xs) > 1:
                _stroke(polyline, rows, own)
        dots = [below | above for below, above in zip(dots, own)]
        _paint(grid, dots, own, curve.color)
    for curve in chart.curves:
        for polyline in curve.polylines:
            if len(polyline.xs) == 1:
                column, row = lone_cell(polyline, chart.layout)
                grid[row][column] = (LONE_POINT, curve.color)
    for mark in chart.marks:
        grid[mark.row][mark.column] = (GLYPHS[mark.kind], mark.color)
    return grid


def _stroke(polyline: Polyline, rows: int, dots: list[int]) -> None:
    """Set the dots along a polyline, one connected stroke in every dot column that it crosses; bit 0 is the lowest dot."""
    most_x, most_y = len(dots) - 1, rows * DOTS_DOWN - 1
    # Levels are counted from the top as in plotext, so that a flat line on the border of two dots is the same in both
    # pictures.
    points = [
        (min(int(x * DOTS_ACROSS), most_x), most_y - min(int((rows - y) * DOTS_DOWN), most_y))
        for x, y in zip(polyline.xs, polyline.ys)
    ]
    column, level = points[0]
    dots[column] |= 1 << level
    for next_column, next_level in points[1:]:
        slope = (next_level - level) / (next_column - column) if next_column > column else 0.0
        reached = level
        for step in range(1, next_column - column):
            passed = int(level + slope * step + 0.5)
            dots[column + step] |= _span(_beyond(reached, passed), passed)
            reached = passed
        start = reached if next_column == column else _beyond(reached, next_level)
        dots[next_column] |= _span(start, next_level)
        column, level = next_column, next_level


def _beyond(reached: int, target: int) -> int:
    """Return the dot after `reached` towards `target`."""
    return reached + (target > reached) - (target < reached)


def _span(one: int, other: int) -> int:
    low, high = (one, other) if one < other else (other, one)
    return ((2 << (high - low)) - 1) << low


def _paint(grid: list[list[Cell]], dots: Sequence[int], own: Sequence[int], color: str) -> None:
    """Draw the cells in which a curve has dots into the grid, together with the dots of the curves below it."""
    rows = len(grid)
    for column in range(len(own) // DOTS_ACROSS):
        left, right = own[2 * column], own[2 * column + 1]
        if not left and not right:
            continue
        own_halves = zip(f"{left:0{rows}x}", f"{right:0{rows}x}")
        halves = zip(f"{dots[2 * column]:0{rows}x}", f"{dots[2 * column + 1]:0{rows}x}")
        for row, (own_half, half) in enumerate(zip(own_halves, halves)):
            if own_half != _EMPTY:
                grid[row][column] = (_BRAILLE[half], color)


def _left_of(label: str | None, width: int) -> Iterable[Run]:
    if label is None:
        return ((" " * width, PLAIN), ("│", AXIS))
    return ((label.rjust(width), TICK), ("┤", AXIS))


def _below(ticks: Sequence[CellTick], columns: int) -> tuple[Line, Line]:
    axis, labels = ["─"] * columns, [" "] * columns
    for tick in ticks:
        start = label_start(tick, columns)
        axis[tick.cell] = "┬"
        labels[start : start + len(tick.label)] = tick.label
    margin = " " * LABEL_WIDTH
    return ((margin, PLAIN), ("└" + "".join(axis), AXIS)), ((f"{margin} ", PLAIN), ("".join(labels), TICK))


def _ruler(chart: Chart) -> Line:
    """Return the x axis in one row: each label stands in the axis, centred where its tick would be."""
    cells: list[Cell] = [("─", AXIS)] * chart.layout.columns
    for tick in chart.x_ticks:
        start = label_start(tick, chart.layout.columns)
        cells[start : start + len(tick.label)] = [(character, TICK) for character in tick.label]
    corner: Cell = ("└", AXIS)
    left = [(" ", PLAIN)] * chart.layout.labels
    return runs([*left, corner, *cells] if left else cells)


def runs(cells: Iterable[Cell]) -> Line:
    """Return a line of cells as runs of one style key each."""
    by_key = groupby(cells, key=itemgetter(1))
    return tuple(("".join(character for character, _ in group), key) for key, group in by_key)


def _half_cells() -> dict[tuple[str, str], str]:
    """Return the braille character for each pair of half columns, four dots each.

    The lowest dot is bit 0 of a hexadecimal digit. Unicode numbers the dots of U+2800 down the left half, then the right, with
    the lowest row added last.
    """
    left_bits, right_bits = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
    characters = {}
    for left, right in product(range(16), range(16)):
        dots = sum(left_bits[i] * (left >> i & 1) + right_bits[i] * (right >> i & 1) for i in range(4))
        characters[f"{left:x}", f"{right:x}"] = chr(0x2800 + dots)
    characters[_EMPTY] = " "
    return characters


_BRAILLE = _half_cells()
