"""The layout of a picture: the same for all drawers, so that nothing moves when the drawer changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.tui.charts.request import PlotRequest

LABEL_WIDTH = 7
"""Cells of a y tick label, for any value ("1e-100", "999 MiB", "-123.4k"), so that the axis does not move as values change."""

MIN_WIDTH_WITH_LABELS = 24
MIN_HEIGHT_WITH_X_AXIS = 6
MIN_HEIGHT_WITH_HEADER = 5


@dataclass(frozen=True)
class Layout:
    """The sizes of a picture's parts, in cells.

    From the top: `header` rows of title and legend, `rows` of canvas, then the x axis and its labels if `framed`. A picture too
    small for both axes is all canvas below the header.
    """

    header: int
    framed: bool
    columns: int
    rows: int

    @property
    def margin(self) -> int:
        """Cells to the left of the canvas: the y labels and the axis."""
        return LABEL_WIDTH + 1 if self.framed else 0


def layout_of(request: PlotRequest) -> Layout:
    """Return the layout for a request's size. It does not depend on the values of its series."""
    width, height = max(request.width, 0), max(request.height, 0)
    wants_header = bool(request.title) or any(series.label for series in request.series)
    header = 1 if wants_header and height >= MIN_HEIGHT_WITH_HEADER else 0
    framed = width >= MIN_WIDTH_WITH_LABELS and height >= MIN_HEIGHT_WITH_X_AXIS
    if framed:
        return Layout(header, True, width - LABEL_WIDTH - 1, height - header - 2)
    return Layout(header, False, width, height - header)
