"""The panel of the curves over steps: loss, total gradient norm, and the norm of the row under the cursor. UI thread.

Loss and norms have no common scale: on one canvas their crossings would mean nothing, and one of two y axes would have to be
read by colour alone. So each has a lane of its own, the loss above from its lowest to its highest value, on a log scale if it
has fallen far, the norms below on a log scale, because layers differ by orders of magnitude. Both lanes have the same x axis,
which ends at the present step, so that a marker stands at the same place in both. At 80x24 the panel has seven rows: the steps
stand in the x axis instead of below it. Where a chart has less than four rows, or the loss is unknown, the norms have all of
it; the legend still has the loss.

Where several optimizers step in turns, as in a GAN, each has a loss and a total norm in a colour of its own.

Values in the legend have fixed places and belong to one step, that of the norms in the tree (`curves_legend.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain

from textual.message import Message

from gradtui.dataclass import dataclass
from gradtui.run.state.changes.branches import branches
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.optimizers.optimizer_turns import (
    OptimizerTurns,
    ShownOptimizer,
    iteration_stride,
    optimizer_turns,
    stride_of,
)
from gradtui.run.state.over_steps.loss_trend import loss_trend
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series as Measured
from gradtui.run.text.bad_steps import nonfinite_text
from gradtui.run.text.gradients import joined, micro_step_words, norms_awaited
from gradtui.run.text.optimizers import main_loss_of
from gradtui.tui.charts.pictures import HeldRequest, Pictures
from gradtui.tui.charts.request import PlotRequest, Scale, Series
from gradtui.tui.panels.curves_legend import ROW_ROLE, RowNorms, legend_line, names_row, step_shown
from gradtui.tui.panels.optimizer_legend import most_lines, optimizer_legend
from gradtui.tui.plots.courses import last_place, parts_of, placed, second_role
from gradtui.tui.plots.optimizers import ROLES, loss_range, loss_scale, on_one_axis
from gradtui.tui.plots.rows import CLIP_ROLE, LOSS_ROLE, TOTAL_ROLE, NormCurve, Selection
from gradtui.tui.plots.run_events import lines_of, marks_over, parts
from gradtui.tui.rendering import Line, elide_start, printable, width_of, wrap
from gradtui.tui.widgets import LineView

_ROOM_FOR_MEANING = 70
_SEPARATOR = " · "


def curves_title(state: RunState, width: int = 100, *, is_wide: bool = True) -> str:
    """Say where the loss goes, what the norms are and how often they are measured, in as many words as fit.

    In few cells that not every step is read goes before all else. The name of a panel that is
    not wide ends with "Loss", which the title does not repeat.
    """
    every, dropped = state.cost.norms_every, state.cost.readings_late + state.cost.readings_without_room
    turns = optimizer_turns(state)
    often = "" if every <= 1 or state.ended is not None else f" every {every} steps"
    left_out = f", {dropped:,} dropped" if dropped else ""
    of = (
        " of this rank's part"
        if shown_norms(state).is_part
        else " of all ranks' parts"
        if state.tree.is_sharded
        else ""
    )
    of += f" of 1 of {turns.parts:,} optimizers" if turns.parts else ""
    losses = _losses_title(state, turns)
    norms = f"L2{of}{often}{left_out}"
    trend = loss_trend(state) if state.ended is None else None
    direction = f"{'loss ' if is_wide else ''}{trend.direction}" if trend is not None else ""
    of_last = f"{direction}, steps {trend.first:,}–{trend.last:,}" if trend is not None else ""
    to_last = f"{direction} to step {trend.last:,}" if trend is not None else ""
    exceptions = f"{often}{left_out}".strip(", ")
    forms = (
        (of_last, losses, norms),
        (of_last, norms),
        (of_last, f"L2{often}{left_out}"),
        *(((of_last,), (to_last,)) if trend is not None and not exceptions else ()),
        (direction, losses, norms),
        (direction, norms),
        (direction, f"L2{often}{left_out}"),
        (direction, exceptions),
        *((exceptions,), (often.strip() or exceptions,), (often.strip().removesuffix(" steps"),)),
    )
    texts = (_SEPARATOR.join(filter(None, form)) for form in forms)
    return next((text for text in texts if width_of(text) <= width), "")


def _losses_title(state: RunState, turns: OptimizerTurns) -> str:
    """Say of what the losses are, where that is not plain: of several backwards, or of several optimizers without an axis."""
    own = [optimizer for optimizer in turns.shown if optimizer.has_own_loss]
    if not on_one_axis(map(loss_range, own)):
        return "separate scales"
    kinds = {optimizer.curves.loss_of for optimizer in own} or {main_loss_of(state)}
    of = kinds.pop() if len(kinds) == 1 else ""
    return f"loss: {of} of micro-steps" if of else ""


@dataclass(frozen=True)
class RunCurves:
    """The curves of the present models, which stay while the cursor moves from row to row."""

    losses: tuple[Series, ...]
    norms: tuple[Series, ...]
    step: int
    since: int
    """The curves begin after this step."""
    has_lanes: bool = False
    """Whether the losses have no common scale."""
    loss_scale: Scale = "linear"
    has_turns: bool = False


def run_curves(state: RunState) -> RunCurves:
    """Return the curves of the losses and the total norms, those on top last. The plotter marks values that are not finite."""
    since, turns = _shown_since(state), optimizer_turns(state)
    if turns.shown:
        return _of_optimizers(state, turns, since)
    loss, total, before = state.loss, shown_norms(state).total, state.before_clipping
    stride = stride_of(state)
    norms = [
        *_series(state, CLIP_ROLE, before, since, stride),
        *_series(state, TOTAL_ROLE, total, since, stride),
    ]
    losses = _series(state, LOSS_ROLE, loss, since, stride)
    scale = loss_scale(loss.values[bisect_right(loss.steps, since) :])
    return RunCurves(losses, tuple(norms), state.step, since, loss_scale=scale)


def curves_request(
    state: RunState, row: RowNorms | None, width: int, height: int, curves: RunCurves | None = None
) -> PlotRequest:
    """Return the curves of the run and of a row to draw, with the markers of the run.

    `curves` are those of the run if the caller has them.
    """
    curves = run_curves(state) if curves is None else curves
    of_row: tuple[Series, ...] = ()
    if row is not None:
        of_row = _series(state, ROW_ROLE, row, curves.since, iteration_stride(state))
    # The row may be the model of an optimizer, whose colour counts more then.
    norms = (*of_row, *curves.norms) if curves.has_turns else (*curves.norms, *of_row)
    first = min((series.xs[0] for series in (*norms, *curves.losses)), default=0.0)
    ends = (first, max(first, last_place(state)))
    return PlotRequest(
        width,
        height,
        norms,
        y_scale="log",
        x_limits=ends,
        above=curves.losses,
        above_scale=curves.loss_scale,
        has_lanes=curves.has_lanes,
        verticals=lines_of(placed(state, marks_over(state, first, since=curves.since)), ends),
    )


def _of_optimizers(state: RunState, turns: OptimizerTurns, since: int) -> RunCurves:
    """Return the curves of the optimizers. On a common scale the first one, which is drawn last, lies on top."""

    def series_of(role: str, optimizer: ShownOptimizer, curve: Measured) -> tuple[Series, ...]:
        return _series(state, role, curve, since, stride_of(state, optimizer.index))

    curves = [(role, optimizer) for role, optimizer in zip(ROLES, turns.shown)]
    own = [(role, optimizer) for role, optimizer in curves if optimizer.has_own_loss]
    losses = [series_of(role, optimizer, optimizer.curves.loss) for role, optimizer in own]
    totals = [series_of(role, optimizer, optimizer.curves.gradient_norm) for role, optimizer in curves]
    has_lanes = not on_one_axis(loss_range(optimizer) for _, optimizer in own)
    return RunCurves(
        tuple(chain(*(losses if has_lanes else reversed(losses)))),
        tuple(chain(*reversed(totals))),
        state.step,
        since,
        has_lanes,
        has_turns=True,
    )


def _shown_since(state: RunState) -> int:
    """Return the step after which the curves begin: that of the newest models whose curves have two points; else 0.

    The curves of former models would take the room of those that train, and the range of their axes. The plots have them.
    """
    curves = state.loss.steps, shown_norms(state).total.steps
    for step in reversed(model_breaks(state)):
        if any(len(steps) - bisect_right(steps, step) > 1 for steps in curves):
            return step
    return 0


def _series(state: RunState, role: str, curve: Measured | RowNorms, since: int, stride: float) -> tuple[Series, ...]:
    """Return the series of the points after a step, one of each set of models.

    No line joins steps more than `stride` apart, or two sets of models.
    """
    first = bisect_right(curve.steps, since)
    xs, ys = tuple(map(float, curve.steps[first:])), tuple(curve.values[first:])
    return tuple(
        Series(
            "",
            second_role(state, role, of),
            tuple(x - of.moved for x in xs[of.where][part]),
            ys[of.where][part],
            stride,
        )
        for of in parts_of(xs, branches(state))
        for part in parts(xs[of.where], model_breaks(state))
        if xs[of.where][part]
    )


def micro_step_line(state: RunState, width: int) -> list[Line]:
    """Return the norms accumulated after each micro-step; if not all fit, the first and the last, or the last only.

    Empty while the user does not follow micro-steps.
    """
    if not state.micro_norms.on:
        return []
    label = "micro-steps " if width < _ROOM_FOR_MEANING else "accumulated after each micro-step "
    step, norms = state.micro_norms.last()
    ways = (micro_step_words(step, norms), joined(norms), joined([norms[0], None, norms[-1]] if norms else []))
    fitting = (way for way in ways if way and width_of(label + way) <= width)
    return [((label, "muted"), (next(fitting, elide_start(joined(norms[-1:]), max(1, width - len(label)))), "text"))]


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
        self._of_run: RunCurves | None = None
        self._row: RowNorms | None = None
        self._step: int | None = None
        """The step of the legend."""
        self._drawn: int | None = None
        """The step of the norms that the tree was drawn with."""
        self.selection: Selection | None = None

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        text = waiting_text(self._state)
        if text:
            return wrap(((text, "muted"),), width)
        alarm, micro_steps = _bad_step_lines(self._state, width, height // 3), micro_step_line(self._state, width)
        if self._curve.is_due:
            self._row = self._row_norms(self._run_curves().since)
        self._step = step_shown(self._state, self._drawn)
        turns = optimizer_turns(self._state)
        by_optimizer = optimizer_legend(self._state, turns, self._row, width, most_lines(height)) if turns.shown else []
        above = len(alarm) + len(micro_steps) + max(1, len(by_optimizer))
        request = self._curve.request(width, height - above, self._request)
        picture: Sequence[Line] = () if request is None else self._pictures.picture("curves", request).lines
        row = self._row.until(self._step) if self._row is not None else None
        legend = by_optimizer or [legend_line(self._state, self._step, row, width)]
        return [*alarm, *legend, *micro_steps, *picture]

    def _run_curves(self) -> RunCurves:
        if self._of_run is None:
            self._of_run = run_curves(self._state)
        return self._of_run

    def _row_norms(self, since: int) -> RowNorms | None:
        """Return the norms of the selected row after a step, for the legend and the curve. None where it has no norm."""
        chosen = self.selection
        if chosen is None:
            return None
        steps, values = self._norms.points(shown_norms(self._state).history, chosen.first, chosen.last)
        first = bisect_right(steps, since)
        known = any(value is not None for value in values[first:])
        return RowNorms(chosen.name, steps[first:], values[first:]) if known else None

    def _request(self, width: int, height: int) -> PlotRequest:
        of_run, row = self._run_curves(), self._row
        # Without its name in the legend, nobody could tell whose curve it is.
        if row is not None and not of_run.has_turns and not names_row(self._state, self._step, row, width):
            row = None
        return curves_request(self._state, row, width, height, of_run)

    def follow(self, drawn: int | None) -> None:
        """Show the values of the step of the norms that the tree was drawn with. The curves stay as they are."""
        if drawn != self._drawn:
            self._drawn, self._row = drawn, self._row_norms(self._run_curves().since)
            self.redraw()

    def select(self, selection: Selection | None) -> None:
        """Show the norm of another row, beside the curves of the run as they are."""
        if selection != self.selection:
            self.selection = selection
            self._curve.renew()
            self.redraw()

    def on_click(self) -> None:
        self.post_message(self.PlotsWanted())

    def redraw_curve(self) -> None:
        """Redraw with new curves."""
        self._of_run = None
        self._curve.renew()
        self.redraw()
