"""The views of the plots, in the order of their tabs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradtui.state.run_state import RunState
from gradtui.tui.plots.depth import depth_plot, depth_table
from gradtui.tui.plots.histogram import histogram_plot, histogram_table
from gradtui.tui.plots.norms import norm_plot, norm_table
from gradtui.tui.plots.options import Plot, PlotOptions
from gradtui.tui.plots.ratios import ratio_plot, ratio_table
from gradtui.tui.plots.table import Table


@dataclass(frozen=True)
class View:
    """One view: its name and the functions that make its plot and table."""

    id: str
    title: str
    plot: Callable[[RunState, PlotOptions, int, int], Plot]
    table: Callable[[RunState, PlotOptions], Table]
    axis: str = ""
    """The axis that can be zoomed and panned, "" if there is none; views of the same axis share their window."""
    watches: bool = False
    """Whether the view shows what is measured only for watched parameters."""
    smooths: bool = False
    pins: bool = False
    has_orders: bool = False


VIEWS: tuple[View, ...] = (
    View("norm", "Norm", norm_plot, norm_table, "steps", smooths=True, pins=True),
    View("ratio", "Ratio", ratio_plot, ratio_table, "steps", watches=True, smooths=True, pins=True),
    View("histogram", "Histogram", histogram_plot, histogram_table, watches=True),
    View("depth", "Depth", depth_plot, depth_table, "layers", has_orders=True),
)
