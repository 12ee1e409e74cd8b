"""How many steps lie between two readings: as few as 3 % of the training time pay for, and four a second at least."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.runtime import ReadingInterval, StepTime

SHARE, MAX_S = 0.03, 0.25
COSTS = 24
"""Readings before their cost is known: the first ones take longer, with cold caches."""
KEPT = 32
"""Readings by whose cost the interval is chosen."""


def step_time(seconds: float) -> StepTime:
    time = StepTime()
    set_step_time(time, seconds)
    return time


def set_step_time(time: StepTime, seconds: float) -> None:
    for _ in range(5):
        time.add(seconds)


def interval(step_s: float, cost_s: float, costs: int = COSTS, *, common: bool = False) -> ReadingInterval:
    """An interval between readings of this cost in steps of this duration."""
    found = ReadingInterval(step_time(step_s))
    found.has_common_steps = common
    for _ in range(costs):
        found.add_cost(cost_s)
    return found


def steps_read(found: ReadingInterval, steps: int) -> list[int]:
    """Which of so many steps are read, as the probe asks for each."""
    read = []
    for step in range(1, steps + 1):
        if found.steps_until(step) == 0:
            found.was_read(step)
            read.append(step)
    return read


def test_every_step_is_read_until_durations_known() -> None:
    assert ReadingInterval(StepTime()).every == 1
    assert [interval(1e-3, 1e-3, costs).every for costs in range(COSTS + 2)] == [1] * COSTS + [34, 34]
    without_steps = ReadingInterval(StepTime())
    for _ in range(COSTS):
        without_steps.add_cost(1.0)
    assert without_steps.every == 1
    assert steps_read(without_steps, 10) == [*range(1, 11)]


@pytest.mark.parametrize("percent", [0.1, 2.9, 3.1, 6.1, 10.0, 50.0, 99.0, 300.0])
def test_steps_between_readings_pay_for_one(percent: float) -> None:
    found = interval(1e-3, percent / 100 * 1e-3)
    every = math.ceil(percent / 3)
    assert found.every == every
    assert steps_read(found, 500) == [*range(every, 501, every)]


@pytest.mark.parametrize(
    ("step_s", "longest"), [(1e-3, 250), (10e-3, 25), (60e-3, 4), (0.2, 1), (0.3, 1), (1.0, 1), (60.0, 1)]
)
def test_readings_are_a_quarter_second_apart_at_most(step_s: float, longest: int) -> None:
    assert interval(step_s, 100 * step_s).every == longest


@pytest.mark.parametrize("disturbed", range(KEPT + 1))
def test_disturbed_readings_change_nothing_unless_all_are(disturbed: int) -> None:
    found = interval(1e-3, 0.1e-3, costs=KEPT)
    for _ in range(disturbed):
        found.add_cost(1.0)
    # The shortest of the newest twelve counts.
    assert found.every == (math.ceil(10 / 3) if disturbed < KEPT else 250)


def test_cheaper_readings_come_more_often_immediately() -> None:
    found = interval(1e-3, 1e-3, costs=KEPT)
    found.add_cost(0.1e-3)
    assert found.every == math.ceil(10 / 3)


def test_steps_that_become_longer_are_read_at_once() -> None:
    found = interval(1e-3, 1e-3)
    assert (found.every, found.steps_until(1)) == (34, 33)
    set_step_time(found.step_time, 0.1)
    # A reading takes 1 % of such a step.
    assert (found.every, found.steps_until(1)) == (1, 0)


def test_interval_counts_from_any_reading() -> None:
    found = interval(1e-3, 0.3e-3)
    found.was_read(7)
    assert [found.steps_until(step) for step in (8, 16, 17, 18)] == [9, 1, 0, 0]


@pytest.mark.parametrize(("percent", "every"), [(2.0, 1), (4.0, 2), (10.0, 4), (16.0, 8), (50.0, 32), (299.0, 128)])
def test_common_interval_is_power_of_two(percent: float, every: int) -> None:
    found = interval(1e-3, percent / 100 * 1e-3, common=True)
    assert found.every == every
    # Another rank may have read other steps before.
    found.was_read(3)
    assert steps_read(found, 300) == [*range(every, 301, every)]


@given(
    step_s=st.floats(1e-5, 10.0),
    cost_s=st.floats(1e-7, 10.0),
    common=st.booleans(),
)
def test_interval_stays_within_its_limits(step_s: float, cost_s: float, common: bool) -> None:
    every = interval(step_s, cost_s, common=common).every
    assert every >= 1
    assert every == 1 or every * step_s <= MAX_S * (1 + 1e-9)
    longest = max(1, int(MAX_S / step_s))
    if common:
        assert every & (every - 1) == 0
        # Half of it would not pay for a reading, or the double would be too long.
        assert every * 2 > longest or cost_s <= every * SHARE * step_s * (1 + 1e-9)
    else:
        assert every == longest or cost_s <= every * SHARE * step_s * (1 + 1e-9)
        assert every == 1 or cost_s > (every - 1) * SHARE * step_s * (1 - 1e-9)


@pytest.mark.parametrize("wanted", [2, 3, 4, 8, 10, 30])
@pytest.mark.parametrize("turns", ["DG", "DDG", "DDDG", "DDDDDG", "DDGG", "ABCD"])
def test_several_optimizers_are_read_equally_often(wanted: int, turns: str) -> None:
    found = interval(1e-3, wanted * SHARE * 1e-3 * 0.999)
    found.step_time.has_several_optimizers = True
    assert found.every == wanted
    steps = 240 * len(turns)
    read = steps_read(found, steps)
    assert len(read) == pytest.approx(steps / wanted, rel=0.05)
    for name in set(turns):
        expected = steps * turns.count(name) / len(turns) / wanted
        assert sum(turns[step % len(turns)] == name for step in read) == pytest.approx(expected, rel=0.15, abs=2)


def test_longer_intervals_are_multiples_across_ranks() -> None:
    read = []
    for wanted in (4, 16):
        found = interval(1e-3, wanted * SHARE * 1e-3 * 0.999, common=True)
        found.step_time.has_several_optimizers = True
        read.append({*steps_read(found, 1000)})
    assert read[1] < read[0]


def test_several_optimizers_have_mean_cost_of_their_readings() -> None:
    found = interval(1e-3, 0, costs=0)
    for _ in range(KEPT // 2):
        found.add_cost(10e-6)
        found.add_cost(100e-6)
    assert found.every == 1
    found.step_time.has_several_optimizers = True
    assert found.every == 2


def test_steps_can_be_read_whatever_that_takes() -> None:
    found = interval(1e-3, 1e-2)
    found.was_read(2)
    found.force(3)
    assert steps_read(found, 100) == [3, 4, 5]
