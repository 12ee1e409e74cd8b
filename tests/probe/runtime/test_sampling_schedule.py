"""A measurement keeps to its share of the time, and is never late where something has just changed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.runtime.sampling_schedule import SamplingSchedule, StepTime


def measured(
    budget: float,
    steps: int,
    cost: float,
    step_seconds: float,
    warmup: int = 16,
    round_length: int = 1,
    is_spread: bool = False,
) -> list[int]:
    """The steps, of so many, that were measured at a cost each."""
    time = StepTime()
    cadence = SamplingSchedule(budget, time, warmup, is_spread=is_spread)
    done = []
    for step in range(steps):
        if cadence.is_due(step, round_length):
            done.append(step)
            cadence.record_cost(cost)
        time.add(step_seconds)
    return done


def of_steps(seconds: float) -> StepTime:
    time = StepTime()
    time.add(seconds)
    time.total = 1_000 * seconds
    return time


@given(
    budget=st.floats(1e-4, 0.5),
    cost=st.floats(1e-6, 1.0),
    step_seconds=st.floats(1e-4, 1.0),
)
def test_after_the_warmup_the_share_is_kept(budget: float, cost: float, step_seconds: float) -> None:
    steps = 5_000
    done = measured(budget, steps, cost, step_seconds)
    after = len([step for step in done if step >= 16])
    rarest = steps / 1_000 + 2
    assert after * cost <= 1.01 * budget * steps * step_seconds + 2 * cost or after <= rarest


@given(
    budget=st.floats(1e-5, 0.5),
    cost=st.floats(1e-6, 1.0),
    step_seconds=st.floats(1e-4, 1.0),
    is_spread=st.booleans(),
)
def test_what_is_said_to_be_within_budget_is(budget: float, cost: float, step_seconds: float, is_spread: bool) -> None:
    """At every step of a run, from the first one on."""
    time = StepTime()
    cadence, paid = SamplingSchedule(budget, time, 3, is_spread=is_spread), 0
    for step in range(1_500):
        if cadence.is_due(step, wanted=step % 700 == 690):
            paid += not cadence.is_exempt
            cadence.record_cost(cost)
        time.add(step_seconds)
        time.total += step_seconds
        assert paid * cost <= 1.0001 * budget * (step + 1) * step_seconds


def test_unpayable_measurements_are_exempt_from_budget() -> None:
    exempt: dict[int, bool] = {}
    cadence = SamplingSchedule(0.01, of_steps(0.1), warmup=2, is_spread=True)
    for step in range(45):
        if cadence.is_due(step, wanted=step == 17):
            exempt[step] = cadence.is_exempt
            cadence.record_cost(0.005)
    # The warm-up, a later round that is measured at any cost, and one that was wanted.
    assert [step for step, is_exempt in exempt.items() if is_exempt] == [0, 1, 10, 17, 20]
    # Five steps pay for a measurement. The fortieth would have been measured at any cost.
    assert [step for step, is_exempt in exempt.items() if not is_exempt] == [6, 15, 25, 30, 35, 40]


def test_first_step_that_seems_long_pays_for_nothing() -> None:
    """It includes what the script and gradtui do before it."""
    time = StepTime()
    cadence = SamplingSchedule(0.01, time, warmup=0)
    time.add(2.0)
    for step in range(3):
        if cadence.is_due(step):
            assert cadence.is_exempt
            cadence.record_cost(0.01)
        time.add(0.002)
        time.total += 0.002


def test_all_steps_of_round_are_paid_for_together() -> None:
    cadence = SamplingSchedule(0.01, of_steps(0.1), warmup=0)
    exempt = {}
    for step in range(16):
        if cadence.is_due(step, 2, wanted=step == 12):
            exempt[step] = cadence.is_exempt
            cadence.record_cost(0.002)
    assert exempt == {0: True, 1: True, 4: False, 5: False, 8: False, 9: False, 12: False, 13: False}


def test_cheap_measurement_happens_every_step() -> None:
    assert measured(0.01, 100, cost=1e-5, step_seconds=0.02) == list(range(100))


def test_the_first_steps_are_always_measured() -> None:
    assert measured(1e-6, 16, cost=0.03, step_seconds=1e-3) == list(range(16))


def test_few_later_rounds_are_measured_whatever_they_cost() -> None:
    assert measured(1e-6, 700, cost=0.2, step_seconds=1e-3, warmup=1, is_spread=True) == [0, 10, 20, 40, 80, 160, 320]
    rounds_of_two = measured(1e-6, 100, cost=0.01, step_seconds=1e-3, warmup=0, round_length=2, is_spread=True)
    assert rounds_of_two == [0, 1, 20, 21, 40, 41, 80, 81]
    assert measured(1e-6, 100, cost=1.1, step_seconds=1e-3, warmup=1, is_spread=True) == [0, 10]


def test_without_a_budget_the_rarest_rate_is_kept() -> None:
    assert measured(0.0, 2_001, cost=1e-6, step_seconds=0.01, warmup=1) == [0, 1_000, 2_000]


def test_one_disturbed_measurement_does_not_thin_out_rest() -> None:
    cadence = SamplingSchedule(0.1, of_steps(0.01))
    for _ in range(5):
        cadence.record_cost(0.0005)
    cadence.record_cost(1.0)
    assert cadence.every == 1
    for _ in range(5):
        cadence.record_cost(1.0)
    assert cadence.every == 1_000


def test_a_forced_measurement_is_made_and_counted_off() -> None:
    cadence = SamplingSchedule(1e-9, of_steps(0.01), warmup=0)
    cadence.record_cost(0.01)
    assert not cadence.is_due(1)
    cadence.force(2)
    for executed in (2, 3):
        assert cadence.is_due(executed)
        cadence.record_cost(0.01)
    assert not cadence.is_due(4)


@pytest.mark.parametrize("round_length", [2, 3])
def test_rounds_are_measured_whole(round_length: int) -> None:
    """No optimizer of a GAN is always the one that is missed."""
    done = measured(0.05, 600, cost=0.002, step_seconds=0.01, warmup=0, round_length=round_length)
    rounds = [list(steps) for _, steps in itertools.groupby(done[round_length:], key=lambda step: step // round_length)]
    assert rounds
    assert all(len(steps) == round_length for steps in rounds[:-1])


def test_the_step_time_follows_what_steps_take_now() -> None:
    time = of_steps(1.0)
    assert time.seconds == 1.0
    for _ in range(30):
        time.add(0.1)
    assert time.seconds == pytest.approx(0.1, rel=0.01)


def test_a_dear_warm_up_is_cut_short() -> None:
    step_time = StepTime()
    step_time.add(0.06)
    cadence = SamplingSchedule(0.01, step_time, warmup=16)
    measured = 0
    for executed in range(16):
        if cadence.is_due(executed):
            measured += 1
            cadence.record_cost(0.1)
    # Half a second in all, but no longer than that.
    assert measured == 5


def test_measurements_are_counted_from_the_last_one() -> None:
    """However the rate changes in between: two multiples of two different rates may lie side by side."""
    gaps: list[tuple[int, int]] = []
    cadence = SamplingSchedule(0.01, of_steps(0.01), warmup=0)
    last, every = 0, 0
    for executed in range(20_000):
        if cadence.is_due(executed):
            gaps.append((executed - last, every))
            cadence.record_cost(0.001 * (8 + executed % 7))
            last, every = executed, cadence.every
    assert len({every for _, every in gaps}) > 1
    assert all(gap == every for gap, every in gaps)


def test_other_wish_postpones_next_measurement() -> None:
    cadence = SamplingSchedule(0.01, of_steps(0.01), warmup=0)
    assert cadence.is_due(0)
    cadence.record_cost(0.001)
    assert cadence.every == 10
    assert cadence.is_due(7, wanted=True)
    assert [executed for executed in range(8, 40) if cadence.is_due(executed)] == [17, 27, 37]


@given(st.integers(1, 40), st.integers(0, 400), st.booleans())
def test_resting_steps_are_those_not_due(every: int, executed: int, is_spread: bool) -> None:
    cadence = SamplingSchedule(1.0, of_steps(2.0**-10), warmup=3, is_spread=is_spread)
    cadence.is_due(0)
    cadence.record_cost(every * 2.0**-10)
    assert cadence.every == every
    asked = [step for step in range(1, executed + 1) if cadence.is_due(step)]
    steps_until_due = cadence.steps_until_due(executed)
    later = list(range(executed + 1, executed + steps_until_due + 2))
    assert [cadence.is_due(step) for step in later] == [False] * steps_until_due + [True], asked


def test_too_long_measurement_waits_for_longer_steps() -> None:
    length = of_steps(0.01)
    cadence = SamplingSchedule(1.0, length, warmup=0, longest=0.5)
    assert cadence.is_due(0)
    cadence.record_cost(0.006)
    assert [executed for executed in range(1, 200) if cadence.is_due(executed)] == []
    assert cadence.steps_until_due(200) >= 1_000
    assert cadence.is_due(200, wanted=True)
    length.seconds = 0.013
    assert cadence.is_due(cadence.every + 200)


def test_unconditional_measurement_leaves_no_debt() -> None:
    cadence = SamplingSchedule(0.01, of_steps(0.01), warmup=3)
    for executed, cost in enumerate((0.05, 0.001, 0.001)):
        assert cadence.is_due(executed)
        cadence.record_cost(cost)
    assert cadence.every == 10


def test_accompanying_measurement_is_paid_without_lengthening() -> None:
    """A step that is taken apart is examined too."""
    cadence = SamplingSchedule(0.1, of_steps(0.01), warmup=0, longest=0.5)
    assert cadence.is_due(0)
    cadence.record_cost(0.004, beside=0.006)
    assert [executed for executed in range(1, 15) if cadence.is_due(executed)] == [10]


def test_dearest_measurement_is_once_a_second_if_short() -> None:
    length = of_steps(1e-4)
    cadence = SamplingSchedule(1e-9, length, warmup=0)
    cadence.record_cost(1.0)
    assert cadence.every == 10_000
    assert [executed for executed in range(1, 20_001) if cadence.is_due(executed)] == [10_000, 20_000]
    for _ in range(5):
        length.add(0.1)
    # By what steps take now, whatever they took when it was measured.
    assert cadence.steps_until_due(20_000) < 1_000
    assert [executed for executed in range(20_001, 21_002) if cadence.is_due(executed)] == [21_000]


def test_zero_step_does_not_postpone_forever() -> None:
    cadence = SamplingSchedule(1e-9, of_steps(-1e-3), warmup=0)
    cadence.record_cost(1.0)
    assert cadence.every <= 20_000


def test_a_pause_brings_no_burst_of_measurements() -> None:
    length = of_steps(0.001)
    cadence = SamplingSchedule(0.01, length, warmup=0)
    for _ in range(8):
        length.add(0.001)
    length.add(30.0)
    for executed in range(1, 4):
        length.add(0.001)
        assert cadence.is_due(executed) == (executed == 1)
        if executed == 1:
            cadence.record_cost(0.001)
    assert cadence.every == 50


def test_pause_does_not_make_dear_measurement_seem_cheap() -> None:
    length = of_steps(0.001)
    cadence = SamplingSchedule(1.0, length, warmup=0, longest=0.5)
    assert cadence.is_due(0)
    cadence.record_cost(0.01)
    length.add(30.0)
    for executed in range(1, 100):
        length.add(0.001)
        assert not cadence.is_due(executed)


def test_long_measurement_is_made_once_after_change() -> None:
    cadence = SamplingSchedule(0.01, of_steps(0.5))
    done = []
    for executed in range(60):
        if executed in (0, 20, 40):
            cadence.force(4)
        if cadence.is_due(executed):
            done.append(executed)
            cadence.record_cost(0.4)
    # At one percent of 0.5 s the next would come after 80 steps.
    assert done == [0, 20, 40]
    assert cadence.is_long


def test_profile_is_allowed_at_twentieth_of_time() -> None:
    step_time = of_steps(0.5)
    cadence = SamplingSchedule(0.01, step_time)
    step_time.total = 1e9
    assert not cadence.allows_profile, "nothing is known of its cost"
    cadence.record_cost(0.4)
    step_time.total = 79.9
    assert not cadence.allows_profile
    step_time.total = 80.1
    assert cadence.allows_profile


@pytest.mark.parametrize(("cost", "measured_steps"), [(0.01, [0, 1, 2]), (0.2, [0, 1])])
def test_steps_after_change_are_measured_anyway(cost: float, measured_steps: list[int]) -> None:
    cadence = SamplingSchedule(1e-6, of_steps(0.1), warmup=1)
    done = []
    for step in range(5):
        if step == 1:
            cadence.force(2, at_boundary=True)
        if step - 1 in done:
            # The cost of a step is recorded at the boundary after it, where the change was made before.
            cadence.record_cost(cost)
        if cadence.is_due(step):
            done.append(step)
    assert done == measured_steps


def test_some_steps_rest_whatever_a_measurement_costs() -> None:
    cadence = SamplingSchedule(0.5, of_steps(0.1), warmup=2)
    cadence.least = 2
    due = []
    for executed in range(8):
        due.append(cadence.is_due(executed))
        if due[-1]:
            cadence.record_cost(1e-6)
    assert due == [True, True, False, True, False, True, False, True]
