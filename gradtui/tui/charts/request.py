"""What a panel asks of the plotting package and what it gets back: frozen plain data. On the UI thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Style keys of all that is not a curve; a curve's key is its series' `color`. The widget maps keys to styles, so that a
# change of theme needs no new drawing.
AXIS = "axis"
TICK = "tick"
TITLE = "title"
LEGEND = "legend"
ALARM = "alarm"
PLAIN = ""

Scale = Literal["linear", "log"]
Unit = Literal["", "bytes"]
Source = Literal["plotext", "braille"]

Run = tuple[str, str]
"""A stretch of text and its style key."""

Line = tuple[Run, ...]


@dataclass(frozen=True)
class Series:
    """One curve: `ys[i]` at step `xs[i]`.

    A y of None is a gap; NaN, Inf and, on a log scale, zero and below become marks on the edge.
    `color` is any text the widget can turn into a style; it comes back as the style key of the curve's runs.
    """

    label: str
    color: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]


@dataclass(frozen=True)
class PlotRequest:
    """Series to be drawn into `width` x `height` terminal cells.

    With `unit="bytes"` the y axis counts in powers of 1024; `from_zero` keeps zero on a linear y axis. `title` and the
    legend share the first row, which is left out when both are empty; `x_label` stands before the labels of the x axis
    (7 cells of room).
    """

    width: int
    height: int
    series: tuple[Series, ...]
    y_scale: Scale = "linear"
    title: str = ""
    x_label: str = "step"
    unit: Unit = ""
    from_zero: bool = False
    x_limits: tuple[float, float] | None = None
    """The x axis reaches at least from the one to the other."""
    view: str = ""
    """A picture of another view never stands in for this one while it is being drawn."""


@dataclass(frozen=True)
class Picture:
    """`height` lines of runs whose texts are `width` cells together.

    The same picture comes as the same object, so a widget may make its strips once and keep them by identity.
    """

    width: int
    height: int
    lines: tuple[Line, ...]
    source: Source
