"""Gradient norms over steps: the total, the total before clipping, the clip threshold, and rows of the tree. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.optimizers.optimizer_turns import OptimizerTurns, iteration_stride, optimizer_turns, stride_of
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.text.gradients import norms_awaited
from gradtui.tui.charts.request import Scale
from gradtui.tui.plots.branched import branched, in_legend
from gradtui.tui.plots.courses import last_place, placed
from gradtui.tui.plots.curves import NORM_AXIS, curves_request, legend_of, run_range, short, step_note, table_of
from gradtui.tui.plots.optimizers import ROLES
from gradtui.tui.plots.options import PINNED_ROLES, REFERENCE_ROLE, SELECTED_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.rows import CLIP_ROLE, TOTAL_ROLE, is_part
from gradtui.tui.plots.run_events import marks_over
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import wrap


def norm_curves(state: RunState, options: PlotOptions) -> list[Curve]:
    """Return the curves to draw, the most important last."""
    shown, turns = shown_norms(state), optimizer_turns(state)
    curves = _of_optimizers(state, turns) if turns.shown else _totals(state)
    rows = list(zip(options.pinned, _pinned_roles(len(turns.shown))))
    if (
        options.selection is not None
        and options.selection not in options.pinned
        and is_part(state.tree, options.selection)
    ):
        rows.append((options.selection, SELECTED_ROLE))
    for row, role in rows:
        curves.append(Curve(row.name, role, *options.norms.points(shown.history, row), stride=iteration_stride(state)))
    return [curve for curve in curves if len(curve.steps)]


def _totals(state: RunState) -> list[Curve]:
    total, before, clipped = shown_norms(state).total, state.before_clipping, state.clip_thresholds
    stride = stride_of(state)
    return [
        Curve("clip threshold", REFERENCE_ROLE, clipped.steps, clipped.values, False, "clip_threshold"),
        Curve(
            "before clipping",
            CLIP_ROLE,
            before.steps,
            before.values,
            column="norm_before_clipping",
            stride=stride,
            means=before.means,
        ),
        Curve("total", TOTAL_ROLE, total.steps, total.values, column="total_norm", stride=stride, means=total.means),
    ]


def _of_optimizers(state: RunState, turns: OptimizerTurns) -> list[Curve]:
    """Return the total norm of each optimizer's gradients, that of the first one last."""
    named = [(optimizer, role, optimizer.curves.gradient_norm) for optimizer, role in zip(turns.shown, ROLES)]
    return [
        Curve(
            optimizer.name,
            role,
            norm.steps,
            norm.values,
            column=f"total_norm {optimizer.name}",
            stride=stride_of(state, optimizer.index),
            means=norm.means,
        )
        for optimizer, role, norm in reversed(named)
    ]


def _pinned_roles(shown: int) -> tuple[str, ...]:
    """Return the colours of pinned rows beside the curves of so many optimizers."""
    # The total before clipping is not drawn beside them: it is of one of them.
    free = [role for role in (*PINNED_ROLES, CLIP_ROLE) if role not in ROLES[:shown]]
    return (*free, *PINNED_ROLES)[: len(PINNED_ROLES)]


def norm_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the norms."""
    curves = branched(state, norm_curves(state, options))
    whole = run_range(curves, last_place(state))
    if whole is None:
        return Plot(tuple(wrap(((norms_awaited(state), "muted"),), width)), None)
    ends = options.window.ends(*whole)
    scale: Scale = "linear" if options.other_scale else "log"
    above = legend_of(in_legend(_in_order(curves)), ends, short, width, options, breaks=model_breaks(state))
    marks = placed(state, marks_over(state, whole[0]))
    request = curves_request(
        curves, options, ends, scale, width, height - len(above), y_label=NORM_AXIS, state=state, marks=marks
    )
    longest = max(curves, key=lambda curve: len(curve.steps))
    note = step_note(longest, ends, whole, options, scale)
    parts = optimizer_turns(state).parts
    note += f" · total of 1 of {parts:,} optimizers" if parts else ""
    return Plot(above, request, range=whole, note=note, curves=tuple(curves), marks=marks)


def norm_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible norms by step, all L2."""
    curves = _in_order(norm_curves(state, options))
    return table_of([replace(curve, name=curve.column or curve.name) for curve in curves], options)


def _in_order(curves: list[Curve]) -> list[Curve]:
    """Return totals before rows of the tree, those of optimizers in the order of their first steps."""
    totals = [curve for curve in curves if curve.column]
    return [*reversed(totals), *(curve for curve in curves if not curve.column)]
