"""The function of the reducer for what the script logs. Pure except for the state that it updates."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState


def metrics_logged(state: RunState, event: ev.MetricsLogged) -> None:
    metrics = state.metrics
    for points in event.points:
        metrics.take(points)
    for step, passes in event.epochs:
        if not metrics.passes.steps or step > metrics.passes.steps[-1]:
            metrics.passes.append(step, passes)
    metrics.omitted, metrics.dropped = max(metrics.omitted, event.omitted), max(metrics.dropped, event.dropped)
