"""What the user has selected for a view, and the plot that a view makes of it: frozen plain data. UI thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from gradtui.dataclass import dataclass
from gradtui.run.state.over_steps.markers import Marker
from gradtui.tui.charts.request import PlotRequest
from gradtui.tui.plots.layers import KeptLayers, LayerOrder
from gradtui.tui.plots.plot_state import MemoryPhases, MetricChoice
from gradtui.tui.plots.rows import NormCurves, Selection
from gradtui.tui.plots.smoothing import smoothed
from gradtui.tui.plots.window import Window
from gradtui.tui.rendering import Line

SELECTED_ROLE, PINNED_ROLES, REFERENCE_ROLE = "curve-2", ("curve-4", "curve-5", "curve-6"), "reference"


@dataclass(frozen=True)
class PlotOptions:
    """The selection and settings of a view."""

    selection: Selection | None = None
    """The row under the tree's cursor."""
    pinned: tuple[Selection, ...] = ()
    """Pinned rows, drawn for comparison with the selection."""
    window: Window = field(default_factory=Window)
    cursor: float | None = None
    """The position at which all curves are read; None for the newest values."""
    other_scale: bool = False
    """Whether to use the scale that is not the view's default: linear instead of log, log instead of linear."""
    smoothing: float = 0.0
    order: LayerOrder = "kind"
    phases: MemoryPhases = "step"
    metric: MetricChoice = field(default_factory=MetricChoice)
    over_epochs: bool = False
    norms: NormCurves = field(default_factory=NormCurves, compare=False)
    kept: KeptLayers = field(default_factory=KeptLayers, compare=False)


@dataclass(frozen=True)
class Curve:
    """Named values over steps (or another axis), drawn in a role's colour."""

    name: str
    role: str
    steps: Sequence[float]
    values: Sequence[float | None]
    can_be_smooth: bool = True
    column: str = ""
    """The name of its column in a table, if it is not that of the curve."""
    means: Sequence[float] | None = None
    """By value: the mean of the values for which it stands, if the curve may lack some. Averages are made of these."""
    stride: float | None = None
    """The distance of neighbours, if the curve may lack some (`charts.request.Series.stride`)."""

    def part(self, where: slice) -> Curve:
        """Return a part of the curve."""
        means = self.means[where] if self.means is not None else None
        return replace(self, steps=self.steps[where], values=self.values[where], means=means)

    def smoothed(self, level: float) -> list[float | None]:
        """Return the moving average at each value."""
        return smoothed(self.values if self.means is None else self.means, level)


@dataclass(frozen=True)
class Plot:
    """One view at one size: lines above a chart, the request for the chart, lines below it."""

    above: tuple[Line, ...]
    request: PlotRequest | None
    below: tuple[Line, ...] = ()
    range: tuple[float, float] | None = None
    """The limits of the axis over which the cursor moves; None if there is nothing to read."""
    note: str = ""
    """Says which part is visible, and how it is drawn."""
    curves: tuple[Curve, ...] = ()
    """The curves that the cursor reads, over the whole axis."""
    marks: tuple[Marker, ...] = ()
    """The marks over the whole axis."""
