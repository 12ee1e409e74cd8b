"""Events of what a script logs, for tests of viewers."""

from __future__ import annotations

from gradtui.protocol.events import MetricPoints, MetricsLogged

LOGGED: dict[str, dict[int, float]] = {
    "train/loss": {step: 2.0 / step for step in range(1, 31)},
    "val/loss": {10: 0.5, 20: 0.4, 30: 0.45},
    "val/accuracy": {10: 0.6, 20: 0.7, 30: 0.65},
    "lr": dict.fromkeys(range(1, 31), 0.1),
}
"""By name: the values of a run of 30 steps and three epochs."""


def metrics_logged(values: dict[str, dict[int, float]] = LOGGED, source: str = "wandb") -> MetricsLogged:
    """One event with the values of all metrics by step, and with an epoch of ten steps."""
    points = tuple(MetricPoints(name, source, False, (*each,), (*each.values(),)) for name, each in values.items())
    newest = max(step for each in values.values() for step in each)
    return MetricsLogged(1.0, newest, points, ((1, 0.1), (newest, newest / 10)))
