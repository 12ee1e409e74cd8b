"""What the script logs, over steps or epochs: the metrics of one quantity, or those that the user has chosen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.metrics import EPOCH
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.parts.metrics import Metric, Metrics, quantity_of
from gradtui.run.state.run_state import RunState
from gradtui.run.text import plural
from gradtui.tui.charts.request import Scale
from gradtui.tui.plots.branched import branched, in_legend
from gradtui.tui.plots.courses import last_place, placed
from gradtui.tui.plots.curves import (
    curves_request,
    legend_of,
    lines_below,
    run_range,
    short,
    table_of,
    whole_range,
)
from gradtui.tui.plots.optimizers import loss_scale
from gradtui.tui.plots.options import Curve, Plot, PlotOptions
from gradtui.tui.plots.plot_state import MetricChoice
from gradtui.tui.plots.run_events import marks_over
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import printable, width_of, wrap

MAX_SHOWN = 6
Ends = tuple[float, float]
_ROLES = ("curve-1", "curve-2", "curve-4", "curve-5", "curve-6", "curve-3")
_OF_SIDE = {"training": "curve-1", "validation": "curve-2"}
"""Training and validation have the same colours for every quantity."""
_NONE_YET = (
    "The script has logged no metric so far. gradtui reads what it gives to W&B, TensorBoard, MLflow, trackio, Aim, Lightning, "
    "transformers, accelerate and the postfix of tqdm."
)
_NO_MATCH = "No metric of the run has this in its name: "


@dataclass(frozen=True)
class ShownMetrics:
    """The metrics of a plot."""

    metrics: tuple[Metric, ...]
    more: int = 0
    """Those that match as well, and have no room."""


def shown_metrics(metrics: Metrics, choice: MetricChoice) -> ShownMetrics:
    """Return the metrics that the user has chosen; without a choice those of the first loss, else the first ones."""
    if choice.words:
        found = metrics.matching(choice.words)
    else:
        name = choice.name if choice.name in metrics.by_name else _first(metrics)
        found = of_quantity(metrics, quantity_of(name)) if name is not None else []
    return ShownMetrics(tuple(found[:MAX_SHOWN]), max(0, len(found) - MAX_SHOWN))


def of_quantity(metrics: Metrics, quantity: str) -> list[Metric]:
    """Return the metrics of a quantity, such as `train/loss` and `val/loss`."""
    return [metric for name, metric in metrics.by_name.items() if quantity_of(name) == quantity]


def next_quantity(metrics: Metrics, choice: MetricChoice, further: int) -> MetricChoice:
    """Return the choice of the quantity `further` positions after the one that is shown."""
    firsts = [*{quantity_of(name): name for name in reversed(_listed(metrics))}.values()][::-1]
    if not firsts:
        return choice
    shown = shown_metrics(metrics, choice).metrics
    present = quantity_of(shown[0].name) if shown else ""
    at = next((index for index, name in enumerate(firsts) if quantity_of(name) == present), -1)
    return MetricChoice(name=firsts[(at + further) % len(firsts)])


def _listed(metrics: Metrics) -> list[str]:
    return [name for name in metrics.by_name if name != EPOCH]


def _first(metrics: Metrics) -> str | None:
    names = _listed(metrics)
    return next((name for name in names if "loss" in quantity_of(name)), names[0] if names else None)


def metric_curves(state: RunState, options: PlotOptions) -> list[Curve]:
    """Return the curves in the order in which the metrics came."""
    shown = shown_metrics(state.metrics, options.metric).metrics
    return [
        Curve(
            printable(metric.name),
            role,
            _places(state.metrics, metric, options),
            metric.points.values,
            # A value of an evaluation is a mean already, and there are few.
            can_be_smooth=metric.side != "validation",
            means=metric.points.means,
        )
        for metric, role in zip(shown, _roles(shown))
        if len(metric.points)
    ]


def _places(metrics: Metrics, metric: Metric, options: PlotOptions) -> Sequence[float]:
    is_over_epochs = options.over_epochs and metrics.has_epochs
    return metrics.epochs_of(metric.points.steps) if is_over_epochs else metric.points.steps


def _roles(metrics: Iterable[Metric]) -> list[str]:
    """Return a colour for each metric: of its side, as long as no other one has that."""
    roles: list[str] = []
    for metric in metrics:
        own = _OF_SIDE.get(metric.side)
        free = [role for role in _ROLES if role not in roles]
        others = [role for role in free if role not in _OF_SIDE.values()]
        roles.append(own if own in free else (others or free)[0])
    return roles


def metrics_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the metrics."""
    is_over_epochs = options.over_epochs and state.metrics.has_epochs
    curves = metric_curves(state, options)
    curves = curves if is_over_epochs else branched(state, curves)
    whole = whole_range(curves) if is_over_epochs else run_range(curves, last_place(state))
    if whole is None:
        words = f"{_NO_MATCH}{options.metric.words}" if state.metrics.by_name and options.metric.words else _NONE_YET
        return Plot(tuple(wrap(((printable(words), "muted"),), width)), None)
    ends = options.window.ends(*whole)
    is_log = all(loss_scale(curve.values) == "log" for curve in curves)
    scale: Scale = "log" if is_log != options.other_scale else "linear"
    breaks = () if is_over_epochs else model_breaks(state)
    above = legend_of(
        in_legend(curves), ends, short, width, options, breaks=breaks, axis="epoch" if is_over_epochs else "step"
    )
    shown = shown_metrics(state.metrics, options.metric)
    below = lines_below(_others(state.metrics, shown), "faint", width, height)
    marks = () if is_over_epochs else placed(state, marks_over(state, whole[0]))
    request = curves_request(
        curves,
        options,
        ends,
        scale,
        width,
        height - len(above) - len(below),
        x_label="epoch" if is_over_epochs else "step",
        y_label=_label(shown),
        state=None if is_over_epochs else state,
        marks=marks,
    )
    return Plot(above, request, below, whole, _note(state, options, curves, ends, whole, scale), tuple(curves), marks)


def _label(shown: ShownMetrics) -> str:
    """Return the quantity, if all metrics are of one."""
    quantities = {quantity_of(metric.name) for metric in shown.metrics}
    label = printable(quantities.pop()) if len(quantities) == 1 else ""
    return label if width_of(label) == len(label) else ""


def _others(metrics: Metrics, shown: ShownMetrics) -> str:
    """Return the newest values of the metrics that are not drawn."""
    names = {metric.name for metric in shown.metrics}
    others = [
        f"{printable(name)} {short(metric.last)}"
        for name, metric in metrics.by_name.items()
        if name not in names and name != EPOCH
    ]
    return f"Others: {' · '.join(others)}" if others else ""


def _note(state: RunState, options: PlotOptions, curves: Sequence[Curve], ends: Ends, whole: Ends, scale: Scale) -> str:
    metrics, is_over_epochs = state.metrics, options.over_epochs and state.metrics.has_epochs
    parts = []
    if ends != whole:
        first, last, end = (f"{place:.2f}" if is_over_epochs else f"{place:,.0f}" for place in (*ends, whole[1]))
        parts.append(f"{'epochs' if is_over_epochs else 'steps'} {first}–{last} of {end}")
    is_smooth = options.smoothing > 0 and any(curve.can_be_smooth for curve in curves)
    parts += [scale, *([f"EMA {options.smoothing:g}"] if is_smooth else [])]
    more = shown_metrics(metrics, options.metric).more
    parts += [f"{more:,} more match"] if more else []
    parts += [f"{plural(metrics.omitted, 'metric')} not kept"] if metrics.omitted else []
    parts += [f"{plural(metrics.dropped, 'value')} dropped"] if metrics.dropped else []
    return " · ".join(parts)


def metrics_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible values by step."""
    return table_of(metric_curves(state, options), options)
