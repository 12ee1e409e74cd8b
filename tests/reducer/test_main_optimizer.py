"""Which optimizer's losses and norms are the curves of the run: in blocks, stages, folds, and of very many optimizers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import Node, started
from helpers.optimizer_runs import linear, loss_at, models, norm_at, owner, run_of, steps
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.reducer import apply
from gradtui.run.reducer.main_optimizer import MAX_OPTIMIZERS
from gradtui.run.reducer.step_figures import MAX_FORMER
from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns, steps_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.text import end_rows, number_text


def texts_of(state: RunState, label: str) -> list[str]:
    return [row.text for row in end_rows(state) if row.label == label]


def two(*events: list[ev.Event]) -> list[ev.Event]:
    listed = models(Node("policy", "Policy", (), (linear("l1"),)), Node("value", "Value", (), (linear("l1"),)))
    return run_of(listed, [owner(listed, "policy"), owner(listed, "value")], *events)


def losses_of(optimizer: int, numbers: list[int]) -> list[tuple[int, float]]:
    return [(number, loss_at(optimizer, number)) for number in numbers]


def norms_of(optimizer: int, numbers: list[int]) -> list[tuple[int, float]]:
    return [(number, norm_at(optimizer, number)) for number in numbers]


@pytest.mark.parametrize("block", [8, 80])
@pytest.mark.parametrize("rounds", [1.5, 2, 3, 3.5])
def test_optimizers_that_step_in_blocks_take_turns(block: int, rounds: float) -> None:
    """As of PPO: 80 steps of the policy, then 80 of the value function."""
    order = (([0] * block + [1] * block) * 4)[: round(2 * block * rounds)]
    state = state_after(*two(steps(order, 2)))
    own = [step for step, optimizer in enumerate(order, 1) if optimizer == 0]
    assert (state.main_optimizer, state.main_since) == (0, 0)
    assert [*state.loss] == losses_of(0, own) == [*state.of_optimizers[0].loss]
    assert [*state.gradient_norm] == norms_of(0, own)
    assert [each.name for each in optimizer_turns(state).shown] == ["policy", "value"]
    summary = state.norm_summary
    assert (summary.first_step, summary.last_step, summary.measured_steps) == (1, own[-1], len(own))
    assert (summary.largest_step, summary.smallest_step, summary.since_step) == (1, own[-1], 0)


def test_blocks_of_three_optimizers_begin_again_with_first() -> None:
    listed = models(*(Node(name, name, (), (linear("l1"),)) for name in "abc"))
    order = ([0] * 10 + [1] * 10 + [2] * 10) * 3
    state = state_after(*run_of(listed, [owner(listed, name) for name in "abc"], steps(order, 3)))
    assert (state.main_optimizer, state.main_since) == (0, 0)
    assert [*state.loss] == [*state.of_optimizers[0].loss]


def test_third_optimizer_takes_over_from_two() -> None:
    listed = models(*(Node(name, name, (), (linear("l1"),)) for name in "abc"))
    order = ([0] * 10 + [1] * 10) * 2 + [2] * 10
    state = state_after(*run_of(listed, [owner(listed, name) for name in "abc"], steps(order, 3)))
    assert (state.main_optimizer, state.main_since) == (2, 41)


def test_late_figures_are_no_further_steps() -> None:
    """The losses of many steps come first in an event, by optimizer, and their norms after them."""
    order = [0] * 20 + [1] * 20
    state = state_after(*two(together(order)))
    assert (state.main_optimizer, state.main_since, state.main_changes.in_turns) == (1, 21, set())
    assert [*state.loss] == losses_of(0, [*range(1, 21)]) + losses_of(1, [*range(21, 41)])


def test_blocks_in_one_event_take_turns() -> None:
    state = state_after(*two(together(([0] * 10 + [1] * 10) * 2), together([0] * 10, 41)))
    assert (state.main_optimizer, state.main_since) == (0, 0)
    assert [*state.loss] == losses_of(0, [*range(1, 11), *range(21, 31), *range(41, 51)])
    assert [*state.gradient_norm] == norms_of(0, [*range(1, 11), *range(21, 31), *range(41, 51)])


def together(order: list[int], first: int = 1) -> list[ev.Event]:
    """All steps in one event: losses by optimizer, and figures with the norms."""
    numbers = [*enumerate(order, first)]
    losses = tuple(
        ev.StepLosses(
            index,
            tuple(step for step, each in numbers if each == index),
            tuple(loss_at(index, step) for step, each in numbers if each == index),
        )
        for index in dict.fromkeys(order)
    )
    figures = tuple(ev.StepFigures(step, each, None, total=norm_at(each, step)) for step, each in numbers)
    return [ev.StepsMeasured(2.0, numbers[-1][0], figures, losses)]


@pytest.mark.parametrize(("count", "main"), [(4, 0), (7, 0), (8, 1)])
def test_eight_steps_are_eight_steps(count: int, main: int) -> None:
    """Each of them has a loss and a norm."""
    state = state_after(*two(steps([0] * 10, 2), together([1] * count, 11)))
    assert state.main_optimizer == main


def test_curves_begin_with_optimizer_taking_over() -> None:
    count = MAX_OPTIMIZERS + 1
    listed = models(*(Node(f"m{index}", "M", (), (linear("l1"),)) for index in range(count)))
    owners = [owner(listed, f"m{index}") for index in range(count)]
    state = state_after(
        *run_of(listed, owners, steps([*range(count - 1)], count), steps([count - 1] * 12, count, first=count))
    )
    assert (state.main_optimizer, state.main_since) == (count - 1, count)
    assert state.norm_summary.since_step == count
    assert all(step >= count or step == 1 for step in state.loss.steps)


def folds(each: int, count: int = 3) -> RunState:
    """A cross-validation: each fold has a new model of the same class and a new optimizer."""
    state = state_after(*[started("folds.py")])
    gone = OptimizerInfo("Adam", 1, (), 2, freed=True)
    for fold in range(count):
        listed = models(Node("Net", "Net", (), (linear("l1"),)), step=fold * each)
        listed = replace(listed, models=(replace(listed.models[0], number=fold + 1),))
        made = ev.OptimizersFound(1.0, fold * each, (*[gone] * fold, owner(listed, "Net")))
        for event in [listed, made, *steps([fold] * each, fold + 1, first=fold * each + 1)]:
            apply(state, event)
    return state


@pytest.mark.parametrize("each", [5, 20])
def test_fold_does_not_continue_row_of_fold_before(each: int) -> None:
    state, first, last = folds(each), 2 * each + 1, 3 * each
    assert [*state.of_optimizers] == [0, 1, 2]
    assert (state.main_optimizer, state.main_since) == (2, first)
    assert (state.norm_summary.first_step, state.norm_summary.last_step) == (first, last)
    for label, value in (("loss", loss_at), ("norm", norm_at)):
        ends = [f"{number_text(value(2, step)).strip()} (step {step})" for step in (first, last)]
        assert texts_of(state, label) == [" → ".join(ends)]


def test_model_that_alone_is_replaced_begins_row() -> None:
    """A GAN whose discriminator is made anew: the generator stays, and with it its optimizer."""
    listed = models(*(Node(name, name, (), (linear("l1"),)) for name in ("Generator", "Discriminator")))
    gone = OptimizerInfo("Adam", 1, (), 2, freed=True)
    generator, discriminator = listed.models
    kept = discriminator.root
    parameters = listed.modules[0].subtree_parameters
    again = replace(
        listed,
        step=20,
        models=(generator, replace(discriminator, number=7)),
        former_modules=(*range(kept), *[-1] * (len(listed.modules) - kept)),
        former_parameters=(*range(parameters), *[-1] * (len(listed.parameters) - parameters)),
    )
    owners = owner(listed, "Generator"), owner(listed, "Discriminator")
    norms = ev.GradientsMeasured(1.5, 20, norm_at(1, 20), None, (1.0,) * len(listed.parameters), optimizer=1)
    made = ev.OptimizersFound(2.0, 20, (owners[0], gone, owners[1]))
    events = run_of(listed, owners, steps([0, 1] * 10, 2), [norms, again, made], steps([0, 2] * 10, 3, first=21))
    state = state_after(*events)
    assert [*state.of_optimizers] == [0, 1, 2]
    assert [step for step, _ in state.of_optimizers[2].loss] == [*range(22, 41, 2)]
    assert [each.name for each in optimizer_turns(state).shown[:1]] == ["Generator"]


def test_further_optimizers_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtui.run.reducer import step_figures

    count = MAX_OPTIMIZERS + 40
    listed = models(*(Node(f"m{index}", "M", (), (linear("l1"),)) for index in range(count)))
    state = state_after(*run_of(listed, [owner(listed, f"m{index}") for index in range(count)]))
    asked: list[int] = []
    original = step_figures._gone
    monkeypatch.setattr(step_figures, "_gone", lambda state, index: asked.append(index) or original(state, index))
    for event in steps([*range(count)] * 3, count):
        apply(state, event)
    assert sorted(asked) == [*range(count)]


def test_records_of_gone_optimizers_are_bounded() -> None:
    """A script that makes an optimizer for each batch."""
    listed = models(Node("Net", "Net", (), (linear("l1"),)))
    freed = OptimizerInfo("Adam", 1, (), 2, freed=True)
    described, count = 15, MAX_FORMER + 500
    state = state_after(*[started("renewed.py"), listed])
    for step in range(1, count + 1):
        if step <= described:
            apply(state, ev.OptimizersFound(1.0, step - 1, (*[freed] * (step - 1), owner(listed, "Net"))))
        figures = ev.StepFigures(step, step - 1, loss_at(0, step), total=norm_at(0, step))
        apply(state, ev.Progress(1.0, step, 1, 1, 0, (*[0] * (step - 1), 1), (), 1e-4, 1, 1))
        apply(state, ev.StepsMeasured(1.0, step, (figures,)))
    (curves,) = state.of_optimizers.values()
    assert len(curves.former) <= MAX_FORMER
    assert len(state.curves_of) <= MAX_FORMER
    assert steps_of(state, count - 1) == count
    assert [*state.loss.steps][-1] == count


def test_points_from_a_step_on_are_cut() -> None:
    series = Series(16)
    for step in range(100):
        series.append(step, float(step % 7))
    series.cut(40)
    assert series.steps
    assert max(series.steps) < 40
    for step in range(40, 200):
        series.append(step, 1.0)
    assert len(series) <= 16
    assert series.steps == sorted(series.steps)
    series.cut(0)
    assert not len(series)
    series.append(1, 2.0)
    assert [*series] == [(1, 2.0)]


def test_order_of_main_optimizers_survives_remake() -> None:
    """Three blocks, whose first optimizer is replaced by one of the same model before its second block."""
    listed = models(*(Node(name, name, (), (linear("l1"),)) for name in "abc"))
    owners = [owner(listed, name) for name in "abc"]
    gone = replace(owners[0], parameters=(), unknown_parameters=2, freed=True)
    again = ev.OptimizersFound(2.0, 30, (gone, *owners[1:], owners[0]))
    first, second = steps([0] * 10 + [1] * 10 + [2] * 10, 3), steps([3] * 10 + [1] * 10, 4, first=31)
    state = state_after(*run_of(listed, owners, first, [again], second))
    assert (state.main_optimizer, state.main_since) == (3, 0)
    assert [step for step, _ in state.loss] == [*range(1, 11), *range(31, 41)]
    assert state.main_changes.in_turns == {1, 2}
