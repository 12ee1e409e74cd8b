"""Ranks that choose their steps by their own cost have steps in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.runtime import CheckSchedule, StepTime, power_of_two

STEP_S = 0.01


def step_time(seconds: float = STEP_S) -> StepTime:
    time = StepTime()
    time.add(seconds)
    return time


def checked(cost: float, steps: int, budget: float = 0.01) -> list[int]:
    """The steps, of so many of a hundredth of a second, after which a rank checks at a cost each."""
    schedule, step, found = CheckSchedule(budget, step_time()), 0, []
    while (step := schedule.next_after(step)) <= steps:
        assert schedule.is_due(step)
        found.append(step)
        schedule.record_cost(cost)
    return found


@pytest.mark.parametrize(("number", "power"), [(0.3, 1), (1, 1), (1.1, 2), (2, 2), (3, 4), (1000, 1024), (1025, 2048)])
def test_powers_of_two(number: float, power: int) -> None:
    assert power_of_two(number) == power


def test_cheap_check_runs_at_every_sixteenth_step() -> None:
    # A hundredth of 10 ms is 100 µs. A quarter of that pays for 0.4 ms every 16 steps.
    assert checked(0.4e-3, 64) == [1, 16, 32, 48, 64]


@pytest.mark.parametrize("cost", [0.5e-3, 3.2e-3])
def test_a_dearer_one_at_every_thirty_second(cost: float) -> None:
    assert checked(cost, 128) == [1, 16, 32, 64, 96, 128]


def test_dear_check_runs_as_budget_pays() -> None:
    # 10 ms are paid for by 100 steps: the next power of two is 128.
    assert checked(10e-3, 400) == [1, 16, 32, 128, 256, 384]
    # One that takes long is not made early either: 3,000 steps pay for it.
    assert checked(0.3, 9_000) == [1, 4096, 8192]


def test_without_budget_only_first_steps_are_checked() -> None:
    assert checked(1e-4, 10_000, budget=0.0) == [1, 16, 32]


def test_one_check_that_was_disturbed_thins_out_nothing() -> None:
    schedule = CheckSchedule(0.01, step_time())
    for cost in (1e-4, 30e-3, 1e-4):
        schedule.record_cost(cost)
        assert schedule.every == 16


def test_the_interval_follows_the_time_of_a_step() -> None:
    time = step_time(1e-3)
    schedule = CheckSchedule(0.01, time)
    schedule.record_cost(2e-3)
    schedule.record_cost(2e-3)
    assert schedule.next_after(32) == 256
    for _ in range(50):
        time.add(1.0)
    assert schedule.next_after(32) == 48


@given(costs=st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=4), budget=st.floats(1e-4, 0.1))
def test_whoever_checks_least_checks_what_all_others_check(costs: list[float], budget: float) -> None:
    found = sorted((checked(cost, 5_000, budget) for cost in costs), key=len)
    regular = [{step for step in steps if step > 32} for steps in found]
    assert all(regular[0] <= each for each in regular)
