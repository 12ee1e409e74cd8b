"""The request and the picture that panels and drawers exchange: frozen plain data. UI thread."""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass

# Style keys of everything except curves; a curve's key is its series' `color`. The widget maps keys to styles, so that
# a change of theme needs no new drawing.
AXIS = "axis"
TICK = "tick"
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

    The xs are finite and ascend. A y of None is a gap; NaN, Inf and, on a log scale, values of zero or below become marks on
    the edge. `label` is printable ASCII, empty for a series without a place in the legend. `color` is any text that the
    widget can turn into a style; it is returned as the style key of the curve's runs.
    """

    label: str
    color: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    stride: float | None = None
    """The distance of neighbours on the x axis, if the curve may lack some: no line joins points that are further apart, unless
    they lie in adjacent cells, and a point without a neighbour is drawn as a dot. None joins all points."""


@dataclass(frozen=True)
class VerticalLine:
    """A dashed line at step `x` behind the curves, with a character of one cell at its top.

    `label` follows the character if there is room, and `kind` stands before it if there is more; their characters are one cell
    wide. Of several lines in one column the first is drawn.
    """

    x: float
    glyph: str
    color: str
    label: str = ""
    kind: str = ""


@dataclass(frozen=True)
class PlotRequest:
    """Series to draw into `width` x `height` terminal cells.

    With `unit="bytes"` the y axis counts in powers of 1024; `from_zero` keeps zero on a linear y axis. The legend is in the
    first row, which is left out if no series has a label. `x_label` is placed before the labels of the x axis, in at most 7
    cells, and `y_label` in a row above the y axis, in characters of one cell.
    """

    width: int
    height: int
    series: tuple[Series, ...]
    y_scale: Scale = "linear"
    x_label: str = "step"
    y_label: str = ""
    unit: Unit = ""
    from_zero: bool = False
    x_limits: tuple[float, float] | None = None
    """The x axis covers at least this range."""
    above: tuple[Series, ...] = ()
    """Series in a lane of their own above the others, with the same x axis."""
    above_scale: Scale = "linear"
    has_lanes: bool = False
    """The curves above have no common scale: each has a lane of its own, the first one at the top, with a y axis if there is
    room for one. A curve may have several series, whose colours differ in `-raw` only."""
    verticals: tuple[VerticalLine, ...] = ()
    view: str = ""
    """While a new picture is being drawn, an older one replaces it only if it has the same view."""


@dataclass(frozen=True)
class Picture:
    """As many lines of runs as requested; the texts of a line add up to the requested width.

    An unchanged picture is returned as the same object, so a widget may make its strips once and cache them by identity.
    """

    lines: tuple[Line, ...]
    source: Source
