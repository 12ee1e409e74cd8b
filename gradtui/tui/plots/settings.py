"""The views of the plots, and what the user has chosen in them, which outlives the screen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.tui.charts.cursor import columns_of
from gradtui.tui.plots.cursor import next_mark, next_stop
from gradtui.tui.plots.depth import depth_plot, depth_table
from gradtui.tui.plots.histogram import histogram_plot, histogram_table
from gradtui.tui.plots.layers import KeptLayers
from gradtui.tui.plots.losses import loss_plot, loss_table
from gradtui.tui.plots.memory import memory_plot, memory_plot_table
from gradtui.tui.plots.metrics import metrics_plot, metrics_table, next_quantity
from gradtui.tui.plots.norms import norm_plot, norm_table
from gradtui.tui.plots.options import Plot, PlotOptions
from gradtui.tui.plots.plot_state import EPOCHS, MAX_PINNED, PlotState
from gradtui.tui.plots.ratios import ratio_plot, ratio_table
from gradtui.tui.plots.rows import NormCurves, Selection, selection_of
from gradtui.tui.plots.speed import speed_plot, speed_table
from gradtui.tui.plots.table import Table


@dataclass(frozen=True)
class View:
    """One view: its name and the functions that make its plot and table."""

    id: str
    title: str
    plot: Callable[[RunState, PlotOptions, int, int], Plot]
    table: Callable[[RunState, PlotOptions], Table]
    axis: str = "steps"
    """The axis over which the cursor moves; views of the same axis share cursor and window."""
    zooms: bool = True
    watches: bool = False
    """Whether the view shows what is measured only for watched parameters."""
    of_row: bool = False
    """Whether the view shows the selected row of the tree."""
    smooths: bool = False
    pins: bool = False
    has_orders: bool = False
    has_phases: bool = False
    has_metrics: bool = False


VIEWS: tuple[View, ...] = (
    View("loss", "Loss", loss_plot, loss_table, smooths=True),
    View("norm", "Norm", norm_plot, norm_table, of_row=True, smooths=True, pins=True),
    View("ratio", "Ratio", ratio_plot, ratio_table, of_row=True, watches=True, smooths=True, pins=True),
    View("histogram", "Histogram", histogram_plot, histogram_table, "sizes", zooms=False, of_row=True, watches=True),
    View("depth", "Depth", depth_plot, depth_table, "layers", of_row=True, has_orders=True),
    View("speed", "Speed", speed_plot, speed_table, smooths=True),
    View("metrics", "Metrics", metrics_plot, metrics_table, smooths=True, has_metrics=True),
    View("memory", "Memory", memory_plot, memory_plot_table, has_phases=True),
)
"""The views in the order of their tabs."""


class PlotSettings:
    """The user's choices, from which `options` makes the settings of the current view, and what is cached between drawings."""

    def __init__(self) -> None:
        self.chosen = PlotState()
        self.changes = 0
        """Incremented with every choice that changes a picture, so that one from before it is not shown after it."""
        self._known: tuple[int, dict[str, Selection]] = (-1, {})
        self._norms = NormCurves()
        self._kept = KeptLayers()

    @property
    def view(self) -> View:
        """The current view, with the axis that it has now."""
        view = next(view for view in VIEWS if view.id == self.chosen.view)
        return replace(view, axis=EPOCHS) if view.has_metrics and self.chosen.over_epochs else view

    @property
    def has_cursor(self) -> bool:
        """Whether all curves are read at a position that the user has chosen."""
        return self.view.axis in self.chosen.cursors

    def options(self, tree: TreeState, row: int | None) -> PlotOptions:
        """Return the selection and settings of the current view, with this row under the tree's cursor."""
        view, chosen = self.view, self.chosen
        return PlotOptions(
            selection=selection_of(tree, row) if row is not None else None,
            pinned=self._pins(tree),
            window=chosen.window(view.axis),
            cursor=chosen.cursors.get(view.axis),
            other_scale=view.id in chosen.other_scales,
            smoothing=chosen.smoothing.get(view.id, 0.0),
            order=chosen.order,
            phases=chosen.phases,
            metric=chosen.metric,
            over_epochs=chosen.over_epochs,
            norms=self._norms,
            kept=self._kept,
        )

    def change(self, change: Callable[[PlotState], PlotState]) -> None:
        """Replace what is chosen."""
        self.chosen = change(self.chosen)
        self.changes += 1

    def show(self, view: str, further: int = 0) -> None:
        """Choose a view by id, or the one `further` positions after it."""
        ids = [view.id for view in VIEWS]
        following = ids[(ids.index(view) + further) % len(ids)]
        self.change(lambda chosen: replace(chosen, view=following))

    def show_next_quantity(self, state: RunState, further: int) -> None:
        """Choose the metrics of the quantity `further` positions after the one that is shown."""
        self.change(lambda chosen: replace(chosen, metric=next_quantity(state.metrics, chosen.metric, further)))

    def read_further(self, plot: Plot, direction: int) -> None:
        """Move the cursor to the next value to the right (1) or to the left (-1), by at least a column."""
        if plot.range is None or plot.request is None:
            return
        axis = self.view.axis
        ends = self.chosen.window(axis).ends(*plot.range)
        least = (ends[1] - ends[0]) / max(1, columns_of(plot.request))
        steps = [curve.steps for curve in plot.curves]
        self._read(next_stop(steps, self.chosen.cursors.get(axis), direction, least, ends), plot)

    def read_at_mark(self, plot: Plot, direction: int) -> bool:
        """Move the cursor to the next mark to the right (1) or to the left (-1). Return whether there is one."""
        step = next_mark(plot.marks, self.chosen.cursors.get(self.view.axis), direction)
        if step is not None:
            self._read(float(step), plot)
        return step is not None

    def read_at(self, plot: Plot, at: float) -> None:
        """Read the curves at the value next to a place."""
        near = [
            each[min(bisect_left(each, at), len(each) - 1)] for each in (curve.steps for curve in plot.curves) if each
        ]
        near += [each[max(0, bisect_left(each, at) - 1)] for each in (curve.steps for curve in plot.curves) if each]
        if near:
            self._read(min(near, key=lambda step: abs(step - at)), plot)

    def _read(self, at: float | None, plot: Plot) -> None:
        before = self.chosen
        self.chosen = before.read(self.view.axis, at, plot.range)
        # A cursor moves over the picture that is there.
        self.changes += self.chosen.windows != before.windows

    def pin(self, tree: TreeState, row: int | None) -> str | None:
        """Pin or unpin the row. Return a sentence that says why it cannot be pinned, else None."""
        if row is None or not self.view.pins:
            return None
        pinned = self.chosen.pin(selection_of(tree, row).name)
        if pinned is None:
            return f"{MAX_PINNED} rows are pinned already; on one of them, a lets it go."
        self.change(lambda _: pinned)
        return None

    def _pins(self, tree: TreeState) -> tuple[Selection, ...]:
        pinned = self.chosen.pinned
        if not pinned:
            return ()
        if self._known[0] != tree.version:
            rows = (*range(len(tree.modules)), *(~index for index in range(len(tree.parameters))))
            self._known = tree.version, {chosen.name: chosen for chosen in (selection_of(tree, row) for row in rows)}
        return tuple(self._known[1][path] for path in pinned if path in self._known[1])
