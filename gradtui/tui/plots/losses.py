"""The loss over steps: one curve, or one of each optimizer where several step in turns. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns, stride_of
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import has_trained
from gradtui.run.text.optimizers import loss_of_text, main_loss_of
from gradtui.tui.charts.request import Scale
from gradtui.tui.plots.branched import branched, in_legend
from gradtui.tui.plots.courses import last_place, placed
from gradtui.tui.plots.curves import curves_request, in_sight, legend_of, run_range, short, step_note, table_of
from gradtui.tui.plots.optimizers import ROLES, loss_scale, on_one_axis, range_of
from gradtui.tui.plots.options import Curve, Plot, PlotOptions
from gradtui.tui.plots.rows import LOSS_ROLE
from gradtui.tui.plots.run_events import marks_over
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import wrap

_AWAITED = "Waiting for the first backward pass: gradtui reads the loss when it begins."
_NO_NUMBER = "No loss was read so far: no backward pass has begun at a single number."
_NONE = "The run had no loss: no backward pass of it began at a single number."


def _why_none(state: RunState) -> str:
    if state.ended is not None:
        return _NONE
    return _NO_NUMBER if has_trained(state) else _AWAITED


def loss_curves(state: RunState) -> list[Curve]:
    """Return the curves, that of the first optimizer first."""
    shown = optimizer_turns(state).shown
    curves = [
        Curve(
            optimizer.name,
            role,
            optimizer.curves.loss.steps,
            optimizer.curves.loss.values,
            stride=stride_of(state, optimizer.index),
            means=optimizer.curves.loss.means,
        )
        for optimizer, role in zip(shown, ROLES)
        if optimizer.has_own_loss
    ] or [
        Curve("loss", LOSS_ROLE, state.loss.steps, state.loss.values, stride=stride_of(state), means=state.loss.means)
    ]
    return [curve for curve in curves if len(curve.steps)]


def loss_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the losses."""
    of_run = loss_curves(state)
    curves = branched(state, of_run)
    whole = run_range(curves, last_place(state))
    if whole is None:
        return Plot(tuple(wrap(((_why_none(state), "muted"),), width)), None)
    ends = options.window.ends(*whole)
    is_log = len(of_run) == 1 and loss_scale(of_run[0].values) == "log"
    scale: Scale = "log" if is_log != options.other_scale else "linear"
    above = legend_of(in_legend(curves), ends, short, width, options, breaks=model_breaks(state))
    marks = placed(state, marks_over(state, whole[0]))
    # Losses of other optimizers may be larger by orders of magnitude. A log scale has room for all of them.
    is_common = (
        scale == "log" or len(of_run) == 1 or on_one_axis(range_of(in_sight(curve, *ends).values) for curve in curves)
    )
    drawn = curves[::-1] if is_common else curves
    request = curves_request(
        drawn, options, ends, scale, width, height - len(above), y_label="loss", state=state, marks=marks
    )
    if not is_common:
        request = replace(request, series=(), above=request.series, has_lanes=True)
    longest = max(curves, key=lambda curve: len(curve.steps))
    notes = [step_note(longest, ends, whole, options, scale)]
    if not is_common:
        notes.append("each on a scale of its own")
    of = loss_of_text(main_loss_of(state))
    if of and len(of_run) == 1:
        notes.append(of)
    return Plot(above, request, range=whole, note=" · ".join(notes), curves=tuple(curves), marks=marks)


def loss_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible losses by step."""
    curves = loss_curves(state)
    named = [replace(curve, name=f"loss {curve.name}") for curve in curves] if len(curves) > 1 else curves
    return table_of(named, options)
