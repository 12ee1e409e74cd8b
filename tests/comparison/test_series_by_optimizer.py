"""What a comparison takes of runs with several optimizers: loss and norms of the main one."""

from __future__ import annotations

from collections.abc import Iterable

from helpers.fakes import Node
from helpers.optimizer_runs import gan, linear, loss_at, models, norm_at, owner, run_of, stages, steps
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.records.comparison import SeriesCollector
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def collected(events: Iterable[ev.Event]) -> SeriesCollector:
    state = RunState()
    series = SeriesCollector(state)
    for event in events:
        apply(state, event)
        series.take(event)
    return series


def test_of_gan_it_has_main_optimizer_alone() -> None:
    series = collected(gan(40))
    assert series.loss == [(step, loss_at(1, step)) for step in range(1, 41, 2)]
    assert series.gradient_norm == [(step, norm_at(1, step)) for step in range(1, 41, 2)]


def test_last_stage_counts_from_its_first_step() -> None:
    series = collected(stages(20))
    assert series.loss == [(step, loss_at(1, step)) for step in range(21, 41)]
    assert series.gradient_norm == [(step, norm_at(1, step)) for step in range(21, 41)]


def test_interleaved_stages_have_each_step_once() -> None:
    listed = models(Node("a", "A", (), (linear("l"),)), Node("b", "B", (), (linear("l"),)))
    owners = owner(listed, "a"), owner(listed, "b")
    together = ev.StepsMeasured(
        9.0,
        40,
        tuple(ev.StepFigures(step, 1, None, total=norm_at(1, step)) for step in range(21, 41)),
        (ev.StepLosses(1, tuple(range(21, 41)), tuple(loss_at(1, step) for step in range(21, 41))),),
    )
    series = collected([*run_of(listed, owners, steps([0] * 20, 2)), together, *steps([1], 2, first=41)])
    assert series.loss == [(step, loss_at(1, step)) for step in range(21, 42)]
    assert series.gradient_norm == [(step, norm_at(1, step)) for step in range(21, 42)]


def test_new_optimizer_of_same_models_continues_series() -> None:
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    first = run_of(listed, [owner(listed, "Net")], steps([0] * 5, 1))
    gone = OptimizerInfo("Adam", 1, (), 2, freed=True)
    again = [ev.OptimizersFound(3.0, 5, (gone, owner(listed, "Net"))), *steps([1] * 5, 2, first=6)]
    series = collected([*first, *again])
    assert series.loss == [(step, loss_at(0 if step < 6 else 1, step)) for step in range(1, 11)]
    assert state_after(*[*first, *again]).main_since == 0
