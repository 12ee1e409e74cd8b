"""What the user has chosen in the plots: view, zoom, pan, cursor, scale, smoothing, order, phases, pins. Frozen plain data.

Every change returns a new state. Windows and cursors belong to an axis, so that the views over steps share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.tui.plots.layers import ORDERS, LayerOrder
from gradtui.tui.plots.window import MIN_SPAN, Window

SMOOTHING_LEVELS = (0.0, 0.6, 0.9, 0.97)
"""Decay factors of the moving average; 0 means no smoothing."""
MAX_PINNED = 3

MemoryPhases = Literal["step", "forward", "backward", "optimizer", "all"]
"""Of what the view of the memory shows the totals: of the step's end, of the end of one phase, or of each phase."""
MEMORY_PHASES: tuple[MemoryPhases, ...] = ("step", "all", "forward", "backward", "optimizer")

EPOCHS = "epochs"
"""The axis of metrics over epochs."""
_LEAST_EPOCHS = 0.1

Span = tuple[float, float]
"""The first and the last position of an axis."""


@dataclass(frozen=True)
class MetricChoice:
    """Which metrics the user has chosen: those whose names contain words, else those of the quantity of one."""

    name: str = ""
    words: str = ""


@dataclass(frozen=True)
class PlotState:
    """The choices of the user. `axis` is the name of an axis, `view` the id of a view."""

    view: str = "loss"
    windows: Mapping[str, Window] = field(default_factory=dict)
    """By axis, where not everything is visible."""
    cursors: Mapping[str, float] = field(default_factory=dict)
    """By axis: the position at which all curves are read. Without one the newest values are."""
    other_scales: frozenset[str] = frozenset()
    """The views that have not their usual scale."""
    smoothing: Mapping[str, float] = field(default_factory=lambda: {"loss": 0.6, "metrics": 0.6})
    """By view, where it is not 0."""
    order: LayerOrder = ORDERS[0]
    phases: MemoryPhases = MEMORY_PHASES[0]
    metric: MetricChoice = field(default_factory=MetricChoice)
    over_epochs: bool = False
    """Whether metrics are drawn over epochs."""
    pinned: tuple[str, ...] = ()
    """Paths, because indexes change with the models."""

    def window(self, axis: str) -> Window:
        """Return the window of an axis."""
        return self.windows.get(axis, Window())

    def zoomed(self, axis: str, factor: float, whole: Span) -> PlotState:
        """Show `factor` times as much: around the cursor, else the newest, or the middle of what is visible."""
        least = _LEAST_EPOCHS if axis == EPOCHS else MIN_SPAN
        return self.with_window(axis, self.window(axis).zoomed(factor, *whole, self.cursors.get(axis), least))

    def panned(self, axis: str, direction: int, whole: Span) -> PlotState:
        """Show what is later (1) or earlier (-1). A cursor that is no longer visible is gone."""
        return self.with_window(axis, self.window(axis).panned(direction, *whole), whole)

    def at_start(self, axis: str, whole: Span) -> PlotState:
        """Show as much, from the first position on."""
        return self.with_window(axis, self.window(axis).at_start(*whole), whole)

    def at_end(self, axis: str) -> PlotState:
        """Show as much, up to the newest position and on with the run, and read the newest values."""
        return self.with_window(axis, self.window(axis).at_end()).read(axis, None)

    def whole(self, axis: str) -> PlotState:
        """Show everything, and read the newest values."""
        return self.with_window(axis, Window()).read(axis, None)

    def read(self, axis: str, at: float | None, whole: Span | None = None) -> PlotState:
        """Read all curves at a position, which becomes visible; None for the newest values."""
        cursors = {name: place for name, place in self.cursors.items() if name != axis}
        if at is None:
            return replace(self, cursors=cursors)
        moved = replace(self, cursors={**cursors, axis: at})
        return moved if whole is None else moved.with_window(axis, self.window(axis).showing(at, *whole))

    def rescaled(self) -> PlotState:
        """Switch the scale of the view between log and linear; that of the memory between near its values and from zero."""
        return replace(self, other_scales=self.other_scales ^ {self.view})

    def smoother(self) -> PlotState:
        """Increase the smoothing of the view, or turn it off after the last level."""
        level = SMOOTHING_LEVELS.index(self.smoothing.get(self.view, 0.0)) + 1
        return replace(self, smoothing={**self.smoothing, self.view: SMOOTHING_LEVELS[level % len(SMOOTHING_LEVELS)]})

    def reordered(self) -> PlotState:
        """Go on to the next order of the layers."""
        return replace(self, order=ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)])

    def over_other_axis(self) -> PlotState:
        """Draw metrics over epochs, or over steps again."""
        return replace(self, over_epochs=not self.over_epochs)

    def with_next_phases(self) -> PlotState:
        """Go on to the next phases of the memory."""
        return replace(self, phases=MEMORY_PHASES[(MEMORY_PHASES.index(self.phases) + 1) % len(MEMORY_PHASES)])

    def pin(self, path: str) -> PlotState | None:
        """Pin a row, or let it go. Return None if as many rows are pinned as can be."""
        if path in self.pinned:
            return replace(self, pinned=tuple(pinned for pinned in self.pinned if pinned != path))
        return replace(self, pinned=(*self.pinned, path)) if len(self.pinned) < MAX_PINNED else None

    def with_window(self, axis: str, window: Window, whole: Span | None = None) -> PlotState:
        """Return the state with another window. If it is of `whole`, a cursor that it does not show is gone."""
        moved = replace(self, windows={**self.windows, axis: window})
        at = self.cursors.get(axis)
        if at is None or whole is None:
            return moved
        first, last = window.ends(*whole)
        return moved if first <= at <= last else moved.read(axis, None)
