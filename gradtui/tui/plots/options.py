"""What a person looks at and how, and what a view makes of it: frozen plain data. On the UI thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gradtui.tui.charts.request import PlotRequest
from gradtui.tui.plots.layers import KeptLayers
from gradtui.tui.plots.rows import NormCurves, Selection
from gradtui.tui.plots.window import Window
from gradtui.tui.rendering import Line

MAX_PINNED = 3
SELECTED_ROLE, PINNED_ROLES, REFERENCE_ROLE = "curve-2", ("curve-4", "curve-5", "curve-6"), "reference"


@dataclass(frozen=True)
class Look:
    """How a view is looked at."""

    selection: Selection | None = None
    """The row under the tree's cursor."""
    pinned: tuple[Selection, ...] = ()
    """Rows that stay, to be compared with it."""
    window: Window = field(default_factory=Window)
    other_scale: bool = False
    """The scale that is not the view's own: linear for log, log for linear."""
    smoothing: float = 0.0
    by_call: bool = False
    """Layers in the order of the calls rather than of the tree."""
    norms: NormCurves = field(default_factory=NormCurves, compare=False)
    kept: KeptLayers = field(default_factory=KeptLayers, compare=False)


@dataclass(frozen=True)
class Curve:
    """Values over steps (or another axis) under a name, in a role's colour."""

    name: str
    role: str
    steps: Sequence[float]
    values: Sequence[float | None]
    can_be_smooth: bool = True


@dataclass(frozen=True)
class Plot:
    """One view at one size: words above, a picture to be drawn, words below."""

    above: tuple[Line, ...]
    request: PlotRequest | None
    below: tuple[Line, ...] = ()
    range: tuple[float, float] | None = None
    """Where the axis begins and ends that can be zoomed and panned; None where there is none."""
    note: str = ""
    """What part of it is in sight, and how it is drawn."""
