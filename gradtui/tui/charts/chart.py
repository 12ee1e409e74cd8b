"""A chart: the drawable data of a request, which every drawer accepts as it is. Plain data.

Canvas coordinates are floats: x from 0 (left edge) to `layout.columns`, y from 0 (bottom edge) to `layout.rows`, so no drawer
ever gets a number from the script.
"""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.tui.charts.request import PlotRequest, Series

MarkKind = Literal["nan", "inf", "-inf", "nonpositive"]

GLYPHS: dict[MarkKind, str] = {"nan": "×", "inf": "▲", "-inf": "▼", "nonpositive": "▼"}
"""The character of each mark. Only `inf` is placed on the upper edge."""

LONE_POINT = "•"
"""The character of a point with no neighbour to connect to, because a single braille dot is easy to miss."""

LABEL_WIDTH = 7
"""Cells of a y tick label, for any value ("1e-100", "999 MiB", "-123.4k"), so that the axis does not move as values change."""

SHORT_LABEL_WIDTH = 5
"""The same in a picture without an x axis. Longer labels are left out."""

MIN_WIDTH_WITH_LABELS = 24
MIN_HEIGHT_WITH_X_AXIS = 6
MIN_HEIGHT_WITH_Y_AXIS = 4
MIN_WIDTH_WITH_RULER, MIN_HEIGHT_WITH_RULER = 12, 3
MIN_ROWS_OF_LANES = 4
MIN_ROWS_OF_LOWER_LANE = 2
"""Below lanes of curves without a common scale; these have all rows if there are fewer."""
MIN_HEIGHT_WITH_HEADER = 5
MIN_HEIGHT_WITH_Y_LABEL = 8


@dataclass(frozen=True)
class Layout:
    """The sizes of a picture's parts, in cells: the same for all drawers, so that nothing moves when the drawer changes.

    From the top: `header` rows of legend, `rows` of canvas, then the x axis and its labels if `framed`, or with `has_ruler` an
    x axis of one row that its labels are in. The first `above` rows of the canvas are the upper lane. The canvas has y tick
    labels of `labels` cells on its left; a picture that is too small for them has none.
    """

    header: int
    framed: bool
    columns: int
    rows: int
    labels: int = 0
    above: int = 0
    has_ruler: bool = False

    @property
    def margin(self) -> int:
        """The cells on the left of the canvas: labels and axis."""
        return self.labels + 1 if self.labels else 0


@dataclass(frozen=True)
class Polyline:
    """Connected points in canvas coordinates, x ascending, at least one."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """One series: a polyline for each stretch between gaps."""

    color: str
    polylines: tuple[Polyline, ...]


@dataclass(frozen=True)
class Mark:
    """A value without a position on the y axis: a character in a canvas cell, on the upper or the lower edge of its lane.

    Zero and below on a log scale have the colour of their curve, values that are not finite `ALARM`.
    """

    column: int
    row: int
    kind: MarkKind
    color: str


@dataclass(frozen=True)
class Vertical:
    """A dashed line in a canvas column, with a character and a label at its top."""

    column: int
    glyph: str
    color: str
    label: str
    kind: str = ""


@dataclass(frozen=True)
class CellTick:
    """A tick in the middle of a canvas column (from the left) or row (from the top)."""

    cell: int
    label: str


@dataclass(frozen=True)
class Chart:
    """Everything below the header. Later curves and marks are drawn over earlier ones."""

    layout: Layout
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...]
    x_ticks: tuple[CellTick, ...]
    y_ticks: tuple[CellTick, ...]
    verticals: tuple[Vertical, ...] = ()
    """In the order of their columns, one in each."""


def lone_cell(polyline: Polyline, layout: Layout) -> tuple[int, int]:
    """Return the cell of a polyline with a single point: column from the left, row from the top."""
    column, row = int(polyline.xs[0]), int(layout.rows - polyline.ys[0])
    return min(column, layout.columns - 1), min(row, layout.rows - 1)


def label_start(tick: CellTick, columns: int) -> int:
    """Return the first column of an x tick label: centred under its tick as far as the edges allow."""
    return max(0, min(tick.cell - (len(tick.label) - 1) // 2, columns - len(tick.label)))


def curves_above(request: PlotRequest) -> dict[str, list[Series]]:
    """Return the series of each lane above the others, by the colour of its curve if each curve has a lane."""
    lanes: dict[str, list[Series]] = {}
    for series in request.above:
        lanes.setdefault(series.color.removesuffix("-raw") if request.has_lanes else "", []).append(series)
    return lanes


def layout_of(request: PlotRequest) -> Layout:
    """Return the layout for a request's size. It does not depend on the values of its series."""
    width, height = max(request.width, 0), max(request.height, 0)
    has_legend = any(series.label for series in request.series) and height >= MIN_HEIGHT_WITH_HEADER
    header = 1 if has_legend or (request.y_label and height >= MIN_HEIGHT_WITH_Y_LABEL) else 0
    framed = width >= MIN_WIDTH_WITH_LABELS and height >= MIN_HEIGHT_WITH_X_AXIS
    labels = LABEL_WIDTH if framed else 0
    if width >= MIN_WIDTH_WITH_LABELS and MIN_HEIGHT_WITH_Y_AXIS <= height < MIN_HEIGHT_WITH_X_AXIS:
        labels = SHORT_LABEL_WIDTH
    has_ruler = not framed and width >= MIN_WIDTH_WITH_RULER and height - header >= MIN_HEIGHT_WITH_RULER
    rows = height - header - (2 if framed else 1 if has_ruler else 0)
    above = rows // 2 if request.above and rows >= MIN_ROWS_OF_LANES else 0
    if request.has_lanes and above:
        # A cell has one colour: each of these curves needs a row, and several curves in one row are of no use.
        above = max(above, len(curves_above(request)))
        above = above if rows - above >= MIN_ROWS_OF_LOWER_LANE else rows
    if request.above and not request.series:
        above = rows
    return Layout(header, framed, width - (labels + 1 if labels else 0), rows, labels, above, has_ruler)
