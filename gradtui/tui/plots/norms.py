"""Gradient norms over steps: the total, the total before clipping, the clip threshold, and rows of the tree. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.state.run_state import RunState
from gradtui.state.shown_norms import shown_norms
from gradtui.text.gradients import norms_awaited
from gradtui.tui.charts.request import Scale
from gradtui.tui.plots.curves import curves_request, legend_of, run_range, short, step_note, table_of
from gradtui.tui.plots.options import PINNED_ROLES, REFERENCE_ROLE, SELECTED_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.rows import CLIP_ROLE, TOTAL_ROLE, is_part
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import wrap


def norm_curves(state: RunState, options: PlotOptions) -> list[Curve]:
    """Return the curves to draw, the most important last."""
    shown = shown_norms(state)
    total, before, clipped = shown.total, state.before_clipping, state.clip_thresholds
    curves = [Curve("clip threshold", REFERENCE_ROLE, clipped.steps, clipped.values, can_be_smooth=False)]
    curves.append(Curve("before clipping", CLIP_ROLE, before.steps, before.values))
    curves.append(Curve("total", TOTAL_ROLE, total.steps, total.values))
    rows = list(zip(options.pinned, PINNED_ROLES))
    if (
        options.selection is not None
        and options.selection not in options.pinned
        and is_part(state.tree, options.selection)
    ):
        rows.append((options.selection, SELECTED_ROLE))
    for row, role in rows:
        curves.append(Curve(row.name, role, *options.norms.points(shown.history, row)))
    return [curve for curve in curves if len(curve.steps)]


def norm_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the norms."""
    curves = norm_curves(state, options)
    whole = run_range(state, curves)
    if whole is None:
        return Plot(tuple(wrap(((norms_awaited(state), "muted"),), width)), None)
    ends = options.window.ends(*whole)
    scale: Scale = "linear" if options.other_scale else "log"
    above = legend_of(sorted(curves, key=_position), ends, short, width)
    request = curves_request(curves, options, ends, scale, width, height - len(above), state=state)
    longest = max(curves, key=lambda curve: len(curve.steps))
    return Plot(above, request, range=whole, note=step_note(longest, ends, whole, options, scale))


def norm_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible norms by step, all L2."""
    curves = sorted(norm_curves(state, options), key=_position)
    return table_of([replace(c, name=_COLUMNS.get(c.role, c.name)) for c in curves], options)


_COLUMNS = {TOTAL_ROLE: "total_norm", CLIP_ROLE: "norm_before_clipping", REFERENCE_ROLE: "clip_threshold"}
"""Column names by role. Rows of the tree have none of these roles."""


def _position(curve: Curve) -> int:
    return list(_COLUMNS).index(curve.role) if curve.role in _COLUMNS else len(_COLUMNS)
