"""The part of the summary about what the script logs. Pure."""

from __future__ import annotations

from gradtui.protocol.summary_metrics import MetricCourse
from gradtui.records.export.optimizers import course_of
from gradtui.run.state.run_state import RunState


def metrics(state: RunState) -> tuple[MetricCourse, ...]:
    """Return the ends and the extremes of each metric, in the order in which they came."""
    return tuple(
        MetricCourse(metric.name, metric.source, metric.side or None, course_of(metric.points, metric.extremes))
        for metric in state.metrics.by_name.values()
        if len(metric.points)
    )
