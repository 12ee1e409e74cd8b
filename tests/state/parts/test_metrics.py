"""What the script logs, in the state: which source and which data a metric is of, its bounds, and its epochs."""

from __future__ import annotations

import pytest

from gradtui.protocol.events import MetricPoints, MetricsLogged
from gradtui.protocol.metrics import MAX_METRICS
from gradtui.run.reducer import apply
from gradtui.run.state.parts.metrics import Metrics, quantity_of, side_of
from gradtui.run.state.run_state import RunState
from gradtui.run.text import progress_line


def points(name: str, pairs: dict[int, float], source: str = "wandb", *, in_evaluation: bool = False) -> MetricPoints:
    return MetricPoints(name, source, in_evaluation, tuple(pairs), tuple(pairs.values()))


def logged(*each: MetricPoints, epochs: tuple[tuple[int, float], ...] = ()) -> RunState:
    state = RunState()
    for one in each:
        apply(state, MetricsLogged(1.0, one.steps[-1], (one,), epochs))
    return state


def curve(state: RunState, name: str) -> list[tuple[int, float]]:
    return [*state.metrics.by_name[name].points]


@pytest.mark.parametrize(
    ("name", "in_evaluation", "side", "quantity"),
    [
        ("train/loss", True, "training", "loss"),
        ("val_loss", False, "validation", "loss"),
        ("train_loss_epoch", False, "training", "loss"),
        ("eval/accuracy_top5", False, "validation", "accuracy top5"),
        ("Accuracy", True, "validation", "accuracy"),
        ("Accuracy", False, "", "accuracy"),
        ("value", True, "validation", "value"),
        ("lr", True, "", "lr"),
        ("opt/learning_rate", True, "", "opt learning rate"),
        ("epoch", False, "", "epoch"),
        ("测试", False, "", "测试"),
        ("%", False, "", "%"),
    ],
)
def test_names_tell_validation_from_training(name: str, in_evaluation: bool, side: str, quantity: str) -> None:
    assert side_of(name, in_evaluation=in_evaluation) == side
    assert quantity_of(name).replace("_", " ") == quantity


def test_the_last_value_of_a_step_counts() -> None:
    state = logged(points("a", {1: 5.0, 2: 4.0}), points("a", {2: 3.0, 3: 2.0}), points("a", {1: 9.0}))
    assert curve(state, "a") == [(1, 5.0), (2, 3.0), (3, 9.0)]
    assert (state.metrics.by_name["a"].extremes.smallest, state.metrics.by_name["a"].extremes.largest) == (2.0, 9.0)


def test_a_metric_of_two_sources_is_shown_once() -> None:
    state = logged(points("a", {1: 5.0}), points("a", {1: 7.0, 2: 8.0}, "mlflow"), points("a", {2: 4.0}))
    assert curve(state, "a") == [(1, 5.0), (2, 4.0)]


def test_a_progress_bar_gives_way() -> None:
    state = logged(points("a", {1: 5.1}, "tqdm"), points("a", {1: 5.123}, "wandb"), points("a", {2: 5.0}, "tqdm"))
    assert (curve(state, "a"), state.metrics.by_name["a"].source) == ([(1, 5.123)], "wandb")


def test_a_run_keeps_so_many_metrics() -> None:
    metrics = Metrics()
    for number in range(MAX_METRICS + 5):
        metrics.take(points(f"metric {number}", {1: 0.0}))
    assert len(metrics.by_name) == MAX_METRICS


def test_epochs_are_logged_or_else_passes() -> None:
    state = logged(points("a", {10: 1.0}), epochs=((10, 1.0), (20, 2.0)))
    assert state.metrics.epochs_of([5, 10, 15, 20, 30]) == [0.5, 1.0, 1.5, 2.0, 3.0]
    apply(state, MetricsLogged(1.0, 20, (points("epoch", {10: 50.0, 20: 51.0}),)))
    assert state.metrics.epochs_of([10, 15, 40]) == [50.0, 50.5, 53.0]
    assert not RunState().metrics.has_epochs


def test_pinned_metric_is_in_line_of_progress() -> None:
    state = logged(points("val/accuracy", {3: 0.75}), points("val/loss", {3: 0.5}))
    assert "0.75" not in progress_line(state)
    state.metrics.pinned = "acc"
    assert "val/accuracy 0.75 (step 3)" in progress_line(state)
    state.metrics.pinned = "no such"
    assert "0.5" not in progress_line(state)
