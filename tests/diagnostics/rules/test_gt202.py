"""GT202: steps without a gradient or a learning rate."""

from __future__ import annotations

import math

import pytest
from scripted_run import calls, match, matches, run, window

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats, GroupSettings
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def test_gradients_that_are_cleared_before_the_step() -> None:
    found = match("GT202", run(calls=calls(window(0, 1, 15, 6), window(1, 0, 5))))
    assert found.evidence == {"steps": 20, "steps_without_gradient": 15}
    assert found.first_step == 6


@pytest.mark.parametrize("empty", [2, 9])
def test_a_few_steps_without_a_gradient(empty: int) -> None:
    """Fewer than three, or than half of all."""
    windows = (window(0, 1, empty), window(1, 0, 20 - empty, empty + 1))
    assert matches("GT202", run(calls=calls(*windows))) == []


def with_rate(rate: float, *, since: int, step: int) -> RunState:
    state = run(steps=step)
    apply(state, ev.GroupsRead(1.0, since, ((GroupSettings(rate, 0.0),),), before=since - 1))
    return state


@pytest.mark.parametrize(("since", "step"), [(1, 5), (30, 49)])
def test_no_learning_rate(since: int, step: int) -> None:
    """From the first step, five steps are enough; later on, twenty."""
    found = match("GT202", with_rate(0.0, since=since, step=step))
    assert found.evidence["steps"] == step - since + 1


@pytest.mark.parametrize(("since", "step"), [(1, 4), (30, 48)])
def test_a_warm_up_and_the_end_of_a_schedule(since: int, step: int) -> None:
    assert matches("GT202", with_rate(0.0, since=since, step=step)) == []
    assert matches("GT202", with_rate(1e-9, since=since, step=100)) == []


@pytest.mark.parametrize(("last", "found"), [(5, True), (4, False)])
def test_a_learning_rate_that_was_0_in_the_first_epoch(last: int, found: bool) -> None:
    state = with_rate(0.0, since=1, step=60)
    apply(state, ev.GroupsRead(2.0, last + 1, ((GroupSettings(0.1, 0.0),),), before=last))
    assert [each.evidence["steps"] for each in matches("GT202", state)] == [last] * found


def with_ratios(*ratios: float, rate: float = 1e-12, since: int = 10, step: int = 60) -> RunState:
    """A run in which each parameter had these update ratios, the last of them from step `since` on."""
    state = with_rate(rate, since=1, step=step)
    for number, ratio in enumerate(ratios):
        figures = tuple(GradientStats(index, 1.0, 0.0, 1.0, 0.0, 0, 1.0, ratio, True) for index in range(4))
        apply(state, ev.GradientFiguresMeasured(1.0, since + number, figures))
    return state


def test_a_learning_rate_below_the_resolution_of_the_weights() -> None:
    found = match("GT202", with_ratios(1e-3, 0.0, 1e-10, 0.0))
    assert found.evidence == {"learning_rate": 1e-12, "newest_update_ratio": 0.0, "since_step": 11, "tensors": 4}


@pytest.mark.parametrize(
    "state",
    [
        with_ratios(1e-3, 1e-4, 1e-3),
        with_ratios(1e-3, 0.0),
        with_ratios(0.0, 0.0, since=920, step=1_000),
        with_ratios(0.0, 0.0, 1e-3),
        with_ratios(0.0, 0.0, 0.0, since=51),
        with_ratios(0.0, 0.0, 0.0, rate=0.0, since=58),
    ],
    ids=[
        "moves",
        "one measurement",
        "the end of a long schedule",
        "moves again",
        "the end of a schedule",
        "a rate of 0 has its own words",
    ],
)
def test_updates_that_are_seen_or_just_became_small(state: RunState) -> None:
    assert [each for each in matches("GT202", state) if "newest_update_ratio" in each.evidence] == []


@pytest.mark.parametrize(("power", "found"), [(9, True), (6, False)])
def test_a_schedule_that_lowers_the_rate_to_nothing_between_two_samples(power: int, found: bool) -> None:
    """The update ratio was 1e-3 before. Below 6e-9, which takes six powers of ten and two for safety, nothing moves."""
    state = with_ratios(1e-3, rate=0.1, since=3, step=60)
    apply(state, ev.GroupsRead(2.0, 30, ((GroupSettings(0.1 * 10.0**-power, 0.0),),), before=29))
    assert [each.evidence["since_step"] for each in matches("GT202", state)] == [30] * found


def test_a_rate_that_rises_again_is_not_small() -> None:
    state = with_ratios(1e-3, rate=0.1, since=3, step=60)
    for step, rate in ((30, 1e-12), (40, 0.05)):
        apply(state, ev.GroupsRead(2.0, step, ((GroupSettings(rate, 0.0),),), before=step - 1))
    assert matches("GT202", state) == []


@pytest.mark.parametrize("ratio", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_not_small(ratio: float) -> None:
    state = with_ratios(ratio, rate=0.1, since=3, step=60)
    apply(state, ev.GroupsRead(2.0, 30, ((GroupSettings(1e-12, 0.0),),), before=29))
    assert matches("GT202", state) == []
