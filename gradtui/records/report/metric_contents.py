"""What a report says about the metrics that the script logs: a row for each, and a chart for each quantity. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.metrics import EPOCH
from gradtui.records.report.curves import Curve, curve_of
from gradtui.run.state.metrics import Metric, quantity_of
from gradtui.run.state.run_state import RunState
from gradtui.run.text import DASH, number_text
from gradtui.system.printable import printable

MAX_CHARTS = 8
_MAX_CURVES = 8
MAX_ROWS = 40


@dataclass(frozen=True)
class MetricRow:
    """A metric with its newest, lowest and highest values, each with its step."""

    name: str
    of: str
    """`training` or `validation`; empty where that is unknown."""
    source: str
    last: str
    lowest: str
    highest: str


@dataclass(frozen=True)
class MetricChart:
    """The curves of one quantity, those of training and validation together."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class MetricContents:
    """All metrics."""

    rows: tuple[MetricRow, ...]
    rows_omitted: int
    charts: tuple[MetricChart, ...]
    charts_omitted: int


def metric_contents(state: RunState) -> MetricContents:
    """Return what a report says about the metrics of a run."""
    metrics = [metric for metric in state.metrics.by_name.values() if len(metric.points)]
    groups: dict[str, list[Metric]] = {}
    for metric in metrics:
        if metric.name != EPOCH:
            groups.setdefault(quantity_of(metric.name), []).append(metric)
    # A single value is no curve.
    drawn = {title: group for title, group in groups.items() if any(len(each.points) > 1 for each in group)}
    charts = [
        MetricChart(title, tuple(curve_of(printable(each.name), each.points) for each in group[:_MAX_CURVES]))
        for title, group in drawn.items()
    ]
    return MetricContents(
        tuple(map(_row, metrics[:MAX_ROWS])),
        max(0, len(metrics) - MAX_ROWS) + state.metrics.omitted,
        tuple(charts[:MAX_CHARTS]),
        max(0, len(charts) - MAX_CHARTS),
    )


def _row(metric: Metric) -> MetricRow:
    extremes = metric.extremes
    return MetricRow(
        metric.name,
        metric.side,
        metric.source,
        _value(metric.last, metric.points.steps[-1]),
        _value(extremes.smallest, extremes.smallest_step),
        _value(extremes.largest, extremes.largest_step),
    )


def _value(value: float | None, step: int | None) -> str:
    return f"{number_text(value).strip()} (step {step:,})" if value is not None and step is not None else DASH
