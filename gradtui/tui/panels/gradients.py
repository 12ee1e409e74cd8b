"""Gradient norms over steps: the total, and the row under the tree's cursor. UI thread; `gradient_request` is pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtui.state.run_state import RunState
from gradtui.state.selectors import has_trained
from gradtui.tui.formatting import norm_text
from gradtui.tui.lines import Line, Span, elide_start, line_width, printable, width_of, wrap
from gradtui.tui.norm_curve import NormCurve
from gradtui.tui.panels.plot_panel import Curve, Pictures
from gradtui.tui.plotting.request import PlotRequest, Series
from gradtui.tui.widgets.line_view import LineView

TOTAL_ROLE, ROW_ROLE = "curve-1", "curve-2"
_SAMPLE = "── "
_GAP = "   "
_LEAST_NAME = 6


@dataclass(frozen=True)
class Selection:
    """The parameters `first:last` under a name."""

    name: str
    first: int
    last: int


def gradient_title(state: RunState) -> str:
    """What the norms are, and how often they are taken."""
    every = state.cost.norms_every
    return f"L2, log{'' if every <= 1 else f', every {every} steps'}"


@dataclass(frozen=True)
class RowNorms:
    """What is drawn of the selected row."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]


def gradient_request(state: RunState, row: RowNorms | None, width: int, height: int) -> PlotRequest:
    """The curves to draw; whatever is not finite in them is the plotter's to mark."""
    total = state.gradient_norm
    series = [_series(TOTAL_ROLE, total.steps, total.values)]
    if row is not None:
        series.append(_series(ROW_ROLE, row.steps, row.values))
    return PlotRequest(width, height, tuple(series), y_scale="log")


def legend_line(state: RunState, row: RowNorms | None, width: int) -> Line:
    """The curves' names and newest values. It is not left to the plotter: values in its labels would make every picture new."""
    total = norm_text(state.gradient_norm.last)
    spans: list[Span] = [(_SAMPLE, TOTAL_ROLE), ("total ", "muted"), (total, "text")]
    if row is not None:
        now = norm_text(row.values[-1] if row.values else None)
        room = width - line_width(spans) - width_of(_GAP + _SAMPLE + " " + now)
        name = elide_start(printable(row.name), max(_LEAST_NAME, room))
        spans += [(_GAP, ""), (_SAMPLE, ROW_ROLE), (name + " ", "muted"), (now, "text")]
    return tuple(spans)


def waiting_text(state: RunState) -> str:
    """Why there is no curve yet, empty if there is something to draw."""
    if len(state.gradient_norm) or len(state.history):
        return ""
    if state.ended is not None:
        if has_trained(state):
            return "The script ended before a gradient norm was measured."
        return "The script never trained: no backward pass was seen, so there are no gradients."
    return "Waiting for the first backward pass: the norm of every gradient is read as the optimizer applies it."


def _series(role: str, steps: Sequence[int], values: Sequence[float | None]) -> Series:
    return Series("", role, tuple(map(float, steps)), tuple(values))


class GradientPanel(LineView):
    """The curves of the total and of the selected row."""

    def __init__(self, state: RunState, pictures: Pictures, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._curve = Curve(pictures, "gradients")
        self._norms = NormCurve()
        self.selection: Selection | None = None

    @property
    def settled(self) -> bool:
        """Whether the picture on the screen is known to be the newest, of the whole window."""
        return self._curve.settled and self._norms.complete

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        text = waiting_text(self._state)
        if text:
            return wrap(((text, "muted"),), width)
        row, chosen = None, self.selection
        if chosen is not None:
            row = RowNorms(chosen.name, *self._norms.points(self._state.history, chosen.first, chosen.last))
        picture = self._curve.lines(gradient_request(self._state, row, width, height - 1))
        return [legend_line(self._state, row, width), *picture]
