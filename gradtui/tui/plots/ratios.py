"""Update-to-weight ratios over steps, with the usual 1e-3 as reference: how far steps move parameters. Pure."""

from __future__ import annotations

from gradtui.run.state.norms.group_ratios import ratio_curve, weights
from gradtui.run.state.norms.usual_ratio import USUAL_RATIO
from gradtui.run.state.optimizers.param_groups import param_groups
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import MAX_JOINED
from gradtui.run.text import group_title
from gradtui.tui.charts.request import Scale
from gradtui.tui.plots.branched import branched, in_legend
from gradtui.tui.plots.courses import last_place, placed
from gradtui.tui.plots.curves import curves_request, legend_of, lines_below, run_range, short, step_note, table_of
from gradtui.tui.plots.options import PINNED_ROLES, REFERENCE_ROLE, SELECTED_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.rows import Selection, largest, why_empty, with_gradient
from gradtui.tui.plots.run_events import marks_over
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import wrap

_MAX = (SELECTED_ROLE, "curve-1", "curve-3")
"""Roles of the parameters of the selected row. If a module has more parameters, the largest are drawn."""
_GROUPS = (SELECTED_ROLE, "curve-1", "curve-3", *PINNED_ROLES)
"""Roles of param groups. If there are more, the first ones are drawn."""
_LEGEND_LINES = 3
_MEANING = (
    "L2 of what a step adds over L2 of the weights, of a sample where they are many: far above the line steps are large, "
    "far below it they hardly move anything."
)
_OF_GROUPS = "A line for each parameter group: the median of its largest weights. "


def ratio_curves(state: RunState, options: PlotOptions) -> list[Curve]:
    """Return a curve for each param group if the selection is of several, else for each parameter, the selection last."""
    return _group_curves(state, options) or _parameter_curves(state, options)


def _parameter_curves(state: RunState, options: PlotOptions) -> list[Curve]:
    found: dict[int, str] = {}
    for selection, role in zip(options.pinned, PINNED_ROLES):
        for index in _drawn(state, selection)[:1]:
            found.setdefault(index, role)
    if options.selection is not None:
        chosen = [index for index in _drawn(state, options.selection) if index not in found]
        found |= dict(reversed(list(zip(chosen, _MAX))))
    curves = []
    for index, role in found.items():
        history = state.tree.ratios.of(index)
        curves.append(
            Curve(
                state.tree.parameters[index].path, role, history.steps, history.values, stride=1.0, means=history.means
            )
        )
    return curves


def ratio_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the ratios."""
    groups = _group_curves(state, options)
    curves = branched(state, groups or _parameter_curves(state, options))
    whole = run_range(curves, last_place(state))
    if whole is None:
        return Plot(
            tuple(wrap(((why_empty(state, options.selection, "How far steps move it"), "muted"),), width)), None
        )
    ends = options.window.ends(*whole)
    scale: Scale = "linear" if options.other_scale else "log"
    usual = Curve("usual", REFERENCE_ROLE, ends, (USUAL_RATIO, USUAL_RATIO), can_be_smooth=False)
    above = legend_of(
        [*reversed(in_legend(curves)), usual], ends, short, width, options, _LEGEND_LINES, model_breaks(state)
    )
    marks = placed(state, marks_over(state, whole[0]))
    left_out = _OF_GROUPS if groups else _left_out(state, options)
    below = lines_below(left_out + _MEANING, "faint", width, height)
    request = curves_request(
        [usual, *curves],
        options,
        ends,
        scale,
        width,
        height - len(above) - len(below),
        y_label="Δw/w",
        state=state,
        marks=marks,
    )
    note = step_note(curves[-1], ends, whole, options, scale)
    return Plot(above, request, below, whole, note, tuple(curves), marks)


def ratio_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible ratios by step."""
    return table_of(list(reversed(ratio_curves(state, options))), options)


def _group_curves(state: RunState, options: PlotOptions) -> list[Curve]:
    """Return the curve of each param group that has weights in the selection, the first one last; none of one group.

    None either where rows are pinned: the user compares parameters.
    """
    where = range(options.selection.first, options.selection.last) if options.selection is not None else range(0)
    if options.pinned or not 1 < len(where) <= MAX_JOINED:
        return []
    inside = ((group, [index for index in group.parameters if index in where]) for group in param_groups(state))
    found = [(group, own) for group, each in inside if (own := weights(state.tree, each))]
    if len(found) < 2:
        return []
    curves = []
    for (group, own), role in zip(found, _GROUPS):
        title = group_title(state, group, with_rate=group.rate is not None)
        curves.append(Curve(title, role, *ratio_curve(state.tree, own), stride=1.0))
    return curves[::-1]


def _drawn(state: RunState, selection: Selection) -> list[int]:
    """Return the selection's parameters that have a curve, the largest first; frozen ones only if none of it trains."""
    having = [index for index in state.tree.ratios.parameters if selection.first <= index < selection.last]
    still = set(with_gradient(state.tree, selection)).intersection(having)
    return largest(state.tree, still or having, len(_MAX) + len(PINNED_ROLES))


def _left_out(state: RunState, options: PlotOptions) -> str:
    if options.selection is None:
        return ""
    count = len(with_gradient(state.tree, options.selection))
    return f"{len(_MAX)} largest of {count:,} tensors. " if count > len(_MAX) else ""
