"""The views of the plots and the user's settings of them: view, zoom, scale, pinned rows. They outlive the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradtui.state.run_state import RunState, TreeState
from gradtui.tui.plots.curves import SMOOTHING_LEVELS
from gradtui.tui.plots.depth import depth_plot, depth_table
from gradtui.tui.plots.histogram import histogram_plot, histogram_table
from gradtui.tui.plots.layers import ORDERS, KeptLayers, LayerOrder
from gradtui.tui.plots.losses import loss_plot, loss_table
from gradtui.tui.plots.memory import memory_plot, memory_plot_table
from gradtui.tui.plots.norms import norm_plot, norm_table
from gradtui.tui.plots.options import MAX_PINNED, Plot, PlotOptions
from gradtui.tui.plots.ratios import ratio_plot, ratio_table
from gradtui.tui.plots.rows import NormCurves, Selection, selection_of
from gradtui.tui.plots.table import Table
from gradtui.tui.plots.window import Window


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
    View("loss", "Loss", loss_plot, loss_table, "steps", smooths=True),
    View("ratio", "Ratio", ratio_plot, ratio_table, "steps", watches=True, smooths=True, pins=True),
    View("histogram", "Histogram", histogram_plot, histogram_table, watches=True),
    View("depth", "Depth", depth_plot, depth_table, "layers", has_orders=True),
    View("memory", "Memory", memory_plot, memory_plot_table, "steps"),
)
"""The views in the order of their tabs."""


class PlotSettings:
    """The user's choices, from which `options` makes the settings of the current view."""

    def __init__(self) -> None:
        self.view: View = VIEWS[0]
        self.changes = 0
        """Incremented with every choice, so that a picture from before it is not shown after it."""
        self._windows: dict[str, Window] = {}
        self._other_scales: set[str] = set()
        self._smoothing = 0.0
        self._order: LayerOrder = ORDERS[0]
        self._pinned: list[str] = []
        """Paths, because indexes change with the models."""
        self._known: tuple[int, dict[str, Selection]] = (-1, {})
        self._norms = NormCurves()
        self._kept = KeptLayers()

    def options(self, tree: TreeState, row: int | None) -> PlotOptions:
        """Return the selection and settings of the current view, with this row under the cursor."""
        return PlotOptions(
            selection=selection_of(tree, row) if row is not None else None,
            pinned=self._pins(tree),
            window=self._windows.get(self.view.axis, Window()),
            other_scale=self.view.id in self._other_scales,
            smoothing=self._smoothing if self.view.smooths else 0.0,
            order=self._order,
            norms=self._norms,
            kept=self._kept,
        )

    def show(self, view: str, further: int = 0) -> None:
        """Choose a view by id, or the one `further` positions after it."""
        ids = [view.id for view in VIEWS]
        self.view = VIEWS[(ids.index(view) + further) % len(ids)]
        self.changes += 1

    def move(self, change: Callable[[Window], Window]) -> None:
        """Zoom or pan, if the view has an axis for it."""
        axis = self.view.axis
        if axis:
            self._windows[axis] = change(self._windows.get(axis, Window()))
            self.changes += 1

    def change_scale(self) -> None:
        """Switch between the log and the linear scale."""
        self._other_scales ^= {self.view.id}
        self.changes += 1

    def smooth(self) -> None:
        """Increase the smoothing, or turn it off after the last level."""
        if self.view.smooths:
            following = SMOOTHING_LEVELS.index(self._smoothing) + 1
            self._smoothing = SMOOTHING_LEVELS[following % len(SMOOTHING_LEVELS)]
            self.changes += 1

    def reorder(self) -> None:
        """Go on to the next order of the layers."""
        if self.view.has_orders:
            self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
            self.changes += 1

    def pin(self, tree: TreeState, row: int | None) -> str | None:
        """Pin or unpin the row. Return a sentence that says why it cannot be pinned, else None."""
        if row is None or not self.view.pins:
            return None
        path = selection_of(tree, row).name
        self.changes += 1
        if path in self._pinned:
            self._pinned.remove(path)
        elif len(self._pinned) >= MAX_PINNED:
            return f"{MAX_PINNED} rows are pinned already; on one of them, a lets it go."
        else:
            self._pinned.append(path)
        return None

    def _pins(self, tree: TreeState) -> tuple[Selection, ...]:
        if not self._pinned:
            return ()
        if self._known[0] != tree.version:
            rows = (*range(len(tree.modules)), *(~index for index in range(len(tree.parameters))))
            self._known = tree.version, {chosen.name: chosen for chosen in (selection_of(tree, row) for row in rows)}
        return tuple(self._known[1][path] for path in self._pinned if path in self._known[1])
