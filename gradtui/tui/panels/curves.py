"""The panel of the curves over steps: loss, total gradient norm, and the norm of the row under the cursor. UI thread.

Loss and norms have no common scale: on one canvas their crossings would mean nothing, and one of two y axes would have to be
read by colour alone. So each has a lane of its own, the loss above on a linear scale from its lowest to its highest value,
the norms below on a log scale, because layers differ by orders of magnitude. Both lanes have the same x axis, which ends at
the present step, so that a marker stands at the same place in both. At 80x24 the panel has six rows: the x axis gives way,
the y axes stay, because a bend can be dated by its marker but not be measured without a scale. Where a chart has less than
four rows, or the loss is unknown, the norms have all of it; the legend still has the loss.

Values in the legend have fixed places and belong to one step, that of the norms in the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from textual.message import Message

from gradtui.state.markers import model_breaks
from gradtui.state.run_state import RunState
from gradtui.state.selectors import total_norm_at, value_at
from gradtui.state.shown_norms import shown_norms
from gradtui.text import NUMBER_WIDTH, nonfinite_text, number_text
from gradtui.text.gradients import joined, micro_step_words, norms_awaited
from gradtui.tui.charts.pictures import HeldRequest, Pictures
from gradtui.tui.charts.request import PlotRequest, Series
from gradtui.tui.plots.rows import CLIP_ROLE, TOTAL_ROLE, NormCurve, Selection
from gradtui.tui.plots.run_events import parts, vertical_lines
from gradtui.tui.rendering import Line, Span, elide_start, line_width, pad, printable, width_of, wrap
from gradtui.tui.widgets import LineView

LOSS_ROLE, ROW_ROLE = "curve-4", "curve-2"
_GAP = " "
"""Values are padded, so that most gaps are wider."""
_MIN_NAME = 6
_ROOM_FOR_MEANING = 70


def curves_title(state: RunState) -> str:
    """Describe the norms and how often they are measured."""
    every, dropped = state.cost.norms_every, state.cost.readings_dropped
    often = "" if every <= 1 or state.ended is not None else f" every {every} steps"
    of = (
        " of this rank's part"
        if shown_norms(state).is_part
        else " of all ranks' parts"
        if state.tree.is_sharded
        else ""
    )
    return f"L2{of}{often}{f', {dropped:,} dropped' if dropped else ''}"


@dataclass(frozen=True)
class RowNorms:
    """The curve of the selected row."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]


def curves_request(state: RunState, row: RowNorms | None, width: int, height: int) -> PlotRequest:
    """Return the curves to draw. The plotter marks values that are not finite."""
    breaks = model_breaks(state)
    loss, total, before = state.loss, shown_norms(state).total, state.before_clipping
    # The first series is drawn first, so that the total lies on top of the total before clipping.
    norms = [
        *_of_each_model(CLIP_ROLE, before.steps, before.values, breaks),
        *_of_each_model(TOTAL_ROLE, total.steps, total.values, breaks),
    ]
    if row is not None:
        norms += _of_each_model(ROW_ROLE, row.steps, row.values, breaks)
    losses = tuple(_of_each_model(LOSS_ROLE, loss.steps, loss.values, breaks))
    first = min((series.xs[0] for series in (*norms, *losses)), default=0.0)
    last = max(first, float(state.step))
    return PlotRequest(
        width,
        height,
        tuple(norms),
        y_scale="log",
        x_limits=(first, last),
        above=losses,
        verticals=vertical_lines(state, first, (first, last)),
    )


def _of_each_model(
    role: str, steps: Sequence[int], values: Sequence[float | None], breaks: Sequence[int]
) -> Iterator[Series]:
    """Yield a series for each set of models."""
    for part in parts(steps, breaks):
        yield Series("", role, tuple(map(float, steps[part])), tuple(values[part]), sparse=f"{role}-raw")


def step_shown(state: RunState) -> int | None:
    """Return the step of the norms in the tree, because totals are measured more often. Without one, the newest step."""
    shown = shown_norms(state)
    step, newest = shown.step, shown.total.steps
    return step if total_norm_at(state, step) is not None else newest[-1] if newest else None


def legend_line(state: RunState, step: int | None, row: RowNorms | None, width: int) -> Line:
    """Return the curves' names, each in the colour of its curve, and their values at `step`.

    The plotter does not draw this legend: values in its labels would change the chart at every step. The row, the value before
    clipping and the step are shown if they fit.
    """
    spans: list[Span] = [("Loss ", LOSS_ROLE), (_steady(value_at(state.loss, step)), "text"), (_GAP, "")]
    norm = total_norm_at(state, step)
    total = (_steady(norm, "≥" if shown_norms(state).is_part and norm is not None else ""), "text")
    spans += [("‖g‖ ", "muted"), ("total ", TOTAL_ROLE), total]
    if line_width(spans) > width:
        spans[-3:] = [("‖g‖ ", TOTAL_ROLE), total]
    clipping = _clipping(state, step)
    least = width_of(_GAP + " ") + NUMBER_WIDTH + _MIN_NAME if row is not None else 0
    if line_width(spans) + line_width(clipping) + least <= width:
        spans += clipping
    if row is not None and line_width(spans) + least <= width:
        now = _steady(row.values[-1] if row.values else None)
        name = elide_start(printable(row.name), width - line_width(spans) - width_of(_GAP + " " + now))
        spans += [(_GAP, ""), (name + " ", ROW_ROLE), (now, "text")]
    when = f"{_GAP}step {step:,}" if step is not None else ""
    return (*spans, (when, "faint")) if line_width(spans) + width_of(when) <= width else tuple(spans)


def micro_step_line(state: RunState, width: int) -> list[Line]:
    """Return the norms accumulated after each micro-step; if not all fit, the first and the last, or the last only.

    Empty while the user does not follow micro-steps.
    """
    if not state.micro_norms.on:
        return []
    label = "micro-steps " if width < _ROOM_FOR_MEANING else "accumulated after each micro-step "
    _, norms = state.micro_norms.last()
    ways = (micro_step_words(state), joined(norms), joined([norms[0], None, norms[-1]] if norms else []))
    fitting = (way for way in ways if way and width_of(label + way) <= width)
    return [((label, "muted"), (next(fitting, elide_start(joined(norms[-1:]), max(1, width - len(label)))), "text"))]


def _clipping(state: RunState, step: int | None) -> list[Span]:
    if not len(state.before_clipping):
        return []
    at = "" if state.clipped_at is None else f" at {state.clipped_at:g}"
    return [
        (_GAP, ""),
        (f"before clipping{at} ", CLIP_ROLE),
        (_steady(value_at(state.before_clipping, step)), "text"),
    ]


def _steady(norm: float | None, mark: str = "") -> str:
    return pad(mark + number_text(norm).strip(), NUMBER_WIDTH)


def _bad_step_lines(state: RunState, width: int, height: int) -> list[Line]:
    """Say where NaN or Inf appeared first, in at most `height` lines, but at least one; empty while every value was finite."""
    if state.bad_step is None:
        return []
    return wrap((("! ", "error"), (printable(nonfinite_text(state.bad_step)), "error")), width, 2)[: max(1, height)]


def waiting_text(state: RunState) -> str:
    """Say why there is no curve yet; empty if there is something to draw."""
    return "" if len(state.loss) or len(state.gradient_norm) or len(state.history) else norms_awaited(state)


class CurvesPanel(LineView):
    """The curves of the loss, the total gradient norm and the norm of the selected row."""

    class PlotsWanted(Message):
        """The user clicked the panel."""

    def __init__(self, state: RunState, pictures: Pictures, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._pictures = pictures
        self._norms = NormCurve()
        self._curve = HeldRequest()
        # The legend belongs to the time at which the curves were made, and to the step of the norms in the tree.
        self._row: RowNorms | None = None
        self._step: int | None = None
        self.selection: Selection | None = None

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        text = waiting_text(self._state)
        if text:
            return wrap(((text, "muted"),), width)
        alarm, micro_steps = _bad_step_lines(self._state, width, height // 3), micro_step_line(self._state, width)
        request = self._curve.request(width, height - 1 - len(alarm) - len(micro_steps), self._request)
        picture: Sequence[Line] = () if request is None else self._pictures.picture("curves", request).lines
        return [*alarm, legend_line(self._state, self._step, self._row, width), *micro_steps, *picture]

    def _request(self, width: int, height: int) -> PlotRequest:
        chosen, self._row, self._step = self.selection, None, step_shown(self._state)
        if chosen is not None:
            self._row = RowNorms(
                chosen.name, *self._norms.points(shown_norms(self._state).history, chosen.first, chosen.last)
            )
        return curves_request(self._state, self._row, width, height)

    def on_click(self) -> None:
        self.post_message(self.PlotsWanted())

    def redraw_curve(self) -> None:
        """Redraw with new curves."""
        self._curve.renew()
        self.redraw()
