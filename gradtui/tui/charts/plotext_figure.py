"""Draws with plotext 6; the only file that uses plotext. Runs in the plot server, where nothing else uses plotext's figure.

Everything used here is plotext's public interface as of 6.1. In that version, sizes are clamped to the terminal unless
`terminal.limit` says otherwise, and limits aligned to the "edge" span the canvas from its first to its last dot.
"""

from __future__ import annotations

from typing import Any

import plotext

from gradtui.tui.charts.messages import Drawing

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


def draw(drawing: Drawing) -> str:
    """Return lines of coloured text: canvas, axes and tick labels. Coordinates must be finite and inside the canvas."""
    figure = plotext.figure
    figure.clear.data()
    label_width = max(len(label) for _, label in drawing["y_ticks"])
    figure.plot_size(drawing["columns"] + label_width + 1, drawing["rows"] + 2)
    figure.axes(True, pixel=_pixel(drawing["axis_ink"]), axis=[0, 1], side=_LOWER_LEFT)
    for axis, cells, ticks in (
        ("x", drawing["columns"], drawing["x_ticks"]),
        ("y", drawing["rows"], drawing["y_ticks"]),
    ):
        ruler = figure.ruler(axis, _LOWER_LEFT)
        ruler.pixel(_pixel(drawing["tick_ink"]))
        ruler.lim(0, cells)
        ruler.ticks([index for index, _ in ticks], [label for _, label in ticks])
    for ink, xs, ys in drawing["pens"]:
        figure.draw(figure.signal(xs, ys, marker=plotext.marker("braille", _pixel(ink))).lines())
    for ink, character, xs, ys in drawing["stamps"]:
        figure.draw(figure.signal(xs, ys, marker=plotext.marker(character, _pixel(ink))))
    text: str = figure.build().string()
    return text


def _pixel(ink: int) -> Any:
    return plotext.pixel(foreground=ink)


_prepare()
