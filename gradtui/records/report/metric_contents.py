"""What a report says about the metrics that the script logs: a row for each, and a chart for each quantity. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.metrics import EPOCH
from gradtui.protocol.run_summary import RunSummary
from gradtui.protocol.summary_metrics import MetricCourse
from gradtui.records.report.curves import Curve
from gradtui.run.state.parts.metrics import quantity_of
from gradtui.run.text import DASH, number_text

MAX_CHARTS = 8
_MAX_CURVES = 8
MAX_ROWS = 40


@dataclass(frozen=True)
class MetricChart:
    """The curves of one quantity, those of training and validation together."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class MetricContents:
    """All metrics."""

    rows: tuple[tuple[str, ...], ...]
    """The name of each, of what it is, its newest, lowest and highest value, each with its step, and who logs it."""
    rows_omitted: int
    charts: tuple[MetricChart, ...]
    charts_omitted: int


def metric_contents(run: RunSummary, curves: Sequence[Curve]) -> MetricContents:
    """Return what a report says about the metrics of a run. `curves`: one for each of them."""
    groups: dict[str, list[Curve]] = {}
    for metric, curve in zip(run.metrics, curves):
        if metric.name != EPOCH:
            groups.setdefault(quantity_of(metric.name), []).append(curve)
    # A single value is no curve.
    charts = [
        MetricChart(title, tuple(group[:_MAX_CURVES]))
        for title, group in groups.items()
        if any(len(each.steps) > 1 for each in group)
    ]
    return MetricContents(
        tuple(map(_row, run.metrics[:MAX_ROWS], curves)),
        max(0, len(run.metrics) - MAX_ROWS) + run.metrics_omitted,
        tuple(charts[:MAX_CHARTS]),
        max(0, len(charts) - MAX_CHARTS),
    )


def _row(metric: MetricCourse, curve: Curve) -> tuple[str, ...]:
    course = metric.course
    newest = _value(curve.values[-1], curve.steps[-1])
    lowest, highest = _value(course.min, course.min_step), _value(course.max, course.max_step)
    return metric.name, metric.of or "", newest, lowest, highest, metric.source


def _value(value: float | None, step: int | None) -> str:
    return f"{number_text(value).strip()} (step {step:,})" if value is not None and step is not None else DASH
