"""Which metrics are drawn, in which colours, over steps or epochs."""

from __future__ import annotations

from helpers.lines import line_text
from helpers.metric_events import LOGGED, metrics_logged
from helpers.states import state_after

from gradtui.protocol.metrics import EPOCH
from gradtui.run.state.run_state import RunState
from gradtui.tui.plots.metrics import metric_curves, metrics_plot, metrics_table, next_quantity, shown_metrics
from gradtui.tui.plots.options import Plot, PlotOptions
from gradtui.tui.plots.plot_state import MetricChoice


def logged(**more: dict[int, float]) -> RunState:
    return state_after(metrics_logged({**LOGGED, **more}))


def names(state: RunState, choice: MetricChoice) -> list[str]:
    return [metric.name for metric in shown_metrics(state.metrics, choice).metrics]


def words(plot: Plot) -> str:
    return "\n".join(line_text(line) for line in (*plot.above, *plot.below))


def test_losses_are_drawn_first_and_others_by_name() -> None:
    state = logged()
    assert names(state, MetricChoice()) == ["train/loss", "val/loss"]
    assert names(state, MetricChoice(name="lr")) == ["lr"]
    assert names(state, MetricChoice(words="val")) == ["val/loss", "val/accuracy"]
    assert names(state, MetricChoice(words="loss val, LR")) == ["val/loss", "lr"]
    assert names(state, MetricChoice(name="gone")) == ["train/loss", "val/loss"]


def test_quantities_follow_each_other() -> None:
    state, choice, seen = logged(**{EPOCH: {1: 0.0, 30: 2.0}}), MetricChoice(), []
    for _ in range(4):
        choice = next_quantity(state.metrics, choice, 1)
        seen.append(choice.name)
    assert seen == ["val/accuracy", "lr", "train/loss", "val/accuracy"]
    assert next_quantity(state.metrics, MetricChoice(), -1).name == "lr"
    assert next_quantity(RunState().metrics, MetricChoice(), 1) == MetricChoice()


def test_training_and_validation_have_colours_of_their_own() -> None:
    state = logged(**{"valid/loss": {30: 1.0}})
    roles = {curve.name: curve.role for curve in metric_curves(state, PlotOptions())}
    assert (roles["train/loss"], roles["val/loss"]) == ("curve-1", "curve-2")
    assert len(set(roles.values())) == 3
    assert [curve.role for curve in metric_curves(state, PlotOptions(metric=MetricChoice(name="lr")))] == ["curve-4"]


def test_plot_says_values_and_other_metrics() -> None:
    state = logged()
    plot = metrics_plot(state, PlotOptions(smoothing=0.6), 100, 30)
    assert "val/loss 0.450" in words(plot)
    assert "step 30" in words(plot)
    assert "Others: val/accuracy 0.650 · lr 0.100" in words(plot)
    assert plot.note == "log · EMA 0.6" or plot.note == "linear · EMA 0.6"
    assert plot.request is not None
    assert plot.request.y_label == "loss"
    assert "@20" not in words(plot)
    assert "val/loss 0.400 @20" in words(metrics_plot(state, PlotOptions(cursor=25.0), 100, 30))


def test_over_epochs_the_places_are_epochs() -> None:
    state = logged()
    options = PlotOptions(metric=MetricChoice(name="val/accuracy"), over_epochs=True)
    (curve,) = metric_curves(state, options)
    assert [round(place, 6) for place in curve.steps] == [1.0, 2.0, 3.0]
    plot = metrics_plot(state, options, 100, 30)
    assert plot.request is not None
    assert plot.request.x_label == "epoch"
    assert "epoch 3.00" in words(plot)
    assert plot.marks == ()


def test_without_metrics_it_says_what_is_read() -> None:
    assert "W&B" in words(metrics_plot(RunState(), PlotOptions(), 80, 20))
    assert "name: zebra" in words(metrics_plot(logged(), PlotOptions(metric=MetricChoice(words="zebra")), 80, 20))


def test_more_than_six_are_counted() -> None:
    many = {f"loss {number}": {1: 1.0} for number in range(9)}
    plot = metrics_plot(state_after(metrics_logged(many)), PlotOptions(metric=MetricChoice(words="loss")), 80, 20)
    assert len(plot.curves) == 6
    assert "3 more match" in plot.note


def test_the_table_has_a_row_for_each_step() -> None:
    table = metrics_table(logged(), PlotOptions(metric=MetricChoice(words="val")))
    assert table.columns == ("optimizer_step", "val/loss", "val/accuracy")
    assert table.rows == ((10, 0.5, 0.6), (20, 0.4, 0.7), (30, 0.45, 0.65))
