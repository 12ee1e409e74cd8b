"""Counts since the last event, and the fifth of a second that short steps share."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.runtime import RunClock
from gradtui.probe.session import PhaseSampler
from gradtui.probe.steps.device_times import OwnDeviceTime
from gradtui.probe.steps.optimizer_step_stack import OptimizerStepStack
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.probe.steps.step_counter import FLUSH_NS, StepCounter
from gradtui.protocol.vocabulary import Phase


def flush(counter: StepCounter, now: int = 0) -> tuple[int, int, int, int, tuple[int, ...]]:
    event = counter.flush(now, 0.0, (), 0, 0, OwnDeviceTime(), 1, 1)
    return event.step, event.steps, event.micro_steps, event.skipped_steps, event.optimizer_steps


@given(st.lists(st.sampled_from(["backward", "skip", "flush", 0, 1, 2]), max_size=80))
def test_events_add_up_to_the_totals(happenings: list[object]) -> None:
    counter = StepCounter()
    steps = micro_steps = skipped = 0
    by_optimizer = [0, 0, 0]
    for happening in [*happenings, "flush"]:
        if happening == "backward":
            counter.micro_steps += 1
        elif happening == "skip":
            counter.skipped()
        elif isinstance(happening, int):
            counter.stepped(happening)
        else:
            step, new, micro, skips, each = flush(counter)
            steps, micro_steps, skipped = steps + new, micro_steps + micro, skipped + skips
            by_optimizer = [total + more for total, more in zip(by_optimizer, [*each, 0, 0, 0])]
            assert step == steps
            assert sum(each) == new
    assert steps == counter.steps == sum(isinstance(happening, int) for happening in happenings)
    assert micro_steps == happenings.count("backward")
    assert skipped == happenings.count("skip")
    assert by_optimizer == [happenings.count(index) for index in range(3)]


def test_short_steps_share_an_event() -> None:
    counter = StepCounter()
    assert counter.is_due(FLUSH_NS)
    flush(counter, now=1_000_000_000)
    assert not counter.is_due(1_000_000_000 + FLUSH_NS - 1)
    assert counter.is_due(1_000_000_000 + FLUSH_NS)


def iterations(steps: Iterable[int]) -> list[int]:
    """The number of iterations after each step; steps are given by the index of their optimizer."""
    counter = StepCounter()
    found = []
    for optimizer in steps:
        counter.stepped(optimizer)
        found.append(counter.iterations)
    return found


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([0, 0, 0], [1, 2, 3], id="one optimizer"),
        pytest.param([0, 1, 0, 1, 0], [1, 1, 2, 2, 3], id="a GAN"),
        pytest.param([0, 0, 0, 1, 0, 0, 0, 1], [1, 2, 3, 3, 4, 5, 6, 6], id="several critic steps"),
        pytest.param([0, 1, 2] * 2, [1, 1, 1, 2, 2, 2], id="an optimizer for each parameter"),
        pytest.param([0, 0, 1, 1, 1], [1, 2, 2, 4, 5], id="one loop after the other"),
        pytest.param([0, 1, 1, 0, 1, 1, 0], [1, 1, 3, 2, 3, 4, 4], id="two generator steps"),
        pytest.param([0, 0, 1, 1, 0, 0, 1], [1, 2, 2, 4, 3, 4, 4], id="blocks"),
    ],
)
def test_iteration_has_one_step_per_optimizer(steps: list[int], expected: list[int]) -> None:
    assert iterations(steps) == expected


def test_step_of_optimizer_made_anew_begins_an_iteration() -> None:
    alive = {0, 1}
    counter = StepCounter(is_alive=alive.__contains__)
    for optimizer, expected in ((0, 1), (1, 1), (0, 2)):
        counter.stepped(optimizer)
        assert counter.iterations == expected
    for optimizer in range(2, 6):
        alive.clear()
        alive.add(optimizer)
        counter.stepped(optimizer)
    assert counter.iterations == 6


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40))
def test_steps_together_are_in_same_iterations(counted: list[tuple[int, int]]) -> None:
    counter = StepCounter()
    for optimizer, times in counted:
        counter.stepped(optimizer, times)
    alone = iterations(optimizer for optimizer, times in counted for _ in range(times))
    assert counter.iterations == (alone[-1] if alone else 0)


def test_steps_before_first_of_optimizer_are_no_iterations() -> None:
    counter = StepCounter()
    counter.stepped_by_hand()
    counter.stepped_by_hand()
    assert counter.iterations == 2
    counter.stepped(0)
    assert (counter.steps, counter.iterations) == (1, 1)


def test_a_step_that_was_skipped_is_no_iteration() -> None:
    counter = StepCounter()
    counter.stepped(0, 5)
    counter.was_skipped(0, is_newest=False)
    assert counter.iterations == 4


@pytest.mark.parametrize("happening", ["stepped", "skipped"])
def test_steps_that_loss_scaler_skips_share_event_too(happening: str) -> None:
    counter = StepCounter()
    flush(counter, now=1_000_000_000)
    counter.skipped() if happening == "skipped" else counter.stepped(0)
    flush(counter, now=2_000_000_000)
    assert not counter.is_due(2_000_000_000 + FLUSH_NS - 1)


def test_a_clock_is_monotonic_and_begins_at_zero() -> None:
    clock = RunClock()
    moments = [clock.at() for _ in range(100)]
    assert moments == sorted(moments)
    assert 0 <= moments[0] < 60


def test_the_phase_is_told_when_it_has_changed() -> None:
    phases, counter = PhaseTracker(0), StepCounter()
    probe = SimpleNamespace(parts=SimpleNamespace(phase=lambda: phases.phase), counter=counter, clock=RunClock())
    sampler = PhaseSampler(probe)  # type: ignore[arg-type]
    first = sampler.sample()
    assert first.phase is Phase.LOAD
    assert sampler.sample() is None
    phases.forward_began(1)
    again = sampler.sample()
    assert again.phase is Phase.FORWARD
    counter.micro_steps += 1
    assert sampler.sample() is None


class Optimizer:
    """Stands for one: only its identity counts."""


def test_the_steps_of_parents_are_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = OptimizerStepStack(lambda left: None)
    one, two = Optimizer(), Optimizer()
    assert not steps
    outer = steps.began(one, True)
    parent = steps.began(one, False)
    other = steps.began(two, False)
    assert [outer.nested, parent.nested, other.nested] == [False, True, False]
    assert steps.depth == 2
    assert steps.ended(one) is None, "the innermost one ends first"
    assert steps.ended(two) is other
    assert steps.ended(one) is parent
    assert steps.ended(one) is outer
    assert steps.ended(one) is None


def test_steps_that_are_no_longer_running_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtui.probe.steps import optimizer_step_stack

    running = 0
    monkeypatch.setattr(optimizer_step_stack, "optimizer_steps_on_stack", lambda: running)
    left: list[int] = []
    steps = OptimizerStepStack(left.append)
    steps.drop_lost()
    for _ in range(3):
        steps.began(Optimizer(), False)
    running = 3
    steps.drop_lost()
    assert left == []
    steps.drop_lost(besides=1)
    assert left == [2]
    running = 0
    assert not steps.are_running()
    assert left == [2, 0]
    assert not steps
