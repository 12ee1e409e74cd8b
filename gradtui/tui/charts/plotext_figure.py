"""Draws with plotext 6; the only file that uses plotext. Runs in the plot server, where nothing else uses plotext's figure.

Everything used here is plotext's public interface as of 6.1. In that version, sizes are clamped to the terminal unless
`terminal.limit` says otherwise, and limits aligned to the "edge" span the canvas from its first to its last dot.
"""

from __future__ import annotations

import plotext

from gradtui.tui.charts.ansi import FIRST_INK, style_keys
from gradtui.tui.charts.chart import GLYPHS, LABEL_WIDTH, LONE_POINT, Chart, lone_cell
from gradtui.tui.charts.request import AXIS, TICK

_LOWER_LEFT, _UPPER_RIGHT = 0, 1


def _prepare() -> None:
    """Set up once what all drawings share: two thin axes, no legend, no colours except the inks."""
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.canvas("default")
    figure.legend(False)
    figure.axes(False, axis=[0, 1], side=_UPPER_RIGHT)
    for axis in ("x", "y"):
        figure.ruler(axis, _LOWER_LEFT).alignment(lim="edge")


def draw(chart: Chart) -> str:
    """Return lines of coloured text: canvas, axes and tick labels. The chart must have ticks on both axes."""
    figure = plotext.figure
    figure.clear.data()
    columns, rows = chart.layout.columns, chart.layout.rows
    pixels = {key: plotext.pixel(foreground=FIRST_INK + i) for i, key in enumerate(style_keys(chart))}
    figure.plot_size(columns + LABEL_WIDTH + 1, rows + 2)
    figure.axes(True, pixel=pixels[AXIS], axis=[0, 1], side=_LOWER_LEFT)
    # Labels of one width keep the axis in place.
    x_ticks = [(tick.cell + 0.5, tick.label) for tick in chart.x_ticks]
    y_ticks = [(rows - tick.cell - 0.5, tick.label.rjust(LABEL_WIDTH)) for tick in chart.y_ticks]
    for axis, cells, ticks in (("x", columns, x_ticks), ("y", rows, y_ticks)):
        ruler = figure.ruler(axis, _LOWER_LEFT)
        ruler.pixel(pixels[TICK])
        ruler.lim(0, cells)
        ruler.ticks([index for index, _ in ticks], [label for _, label in ticks])

    def draw_character(character: str, color: str, column: int, row: int) -> None:
        marker = plotext.marker(character, pixels[color])
        figure.draw(figure.signal([column + 0.5], [rows - row - 0.5], marker=marker))

    lines = [(line, curve.color) for curve in chart.curves for line in curve.polylines]
    for line, color in lines:
        if len(line.xs) > 1:
            marker = plotext.marker("braille", pixels[color])
            figure.draw(figure.signal(list(line.xs), list(line.ys), marker=marker).lines())
    for line, color in lines:
        if len(line.xs) == 1:
            draw_character(LONE_POINT, color, *lone_cell(line, chart.layout))
    for mark in chart.marks:
        draw_character(GLYPHS[mark.kind], mark.color, mark.column, mark.row)
    text: str = figure.build().string()
    return text


_prepare()
