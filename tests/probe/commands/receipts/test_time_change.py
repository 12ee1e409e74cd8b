from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gradtui.probe.commands.receipts.time_change import MIN_STEPS, time_change

SEEDS = 400


def normal(chance: random.Random, deviation: float) -> float:
    return 1 + chance.gauss(0, deviation)


def one_sided(chance: random.Random, deviation: float) -> float:
    return 1 + chance.expovariate(1 / deviation)


def with_spikes(chance: random.Random, deviation: float) -> float:
    return normal(chance, deviation) + (chance.random() < 0.1) * chance.random()


def of_two_modes(chance: random.Random, deviation: float) -> float:
    return normal(chance, deviation / 3) + (chance.random() < 0.5) * 2 * deviation


Noise = Callable[[random.Random, float], float]


def reported(noise: Noise, deviation: float, factor: float, count: int) -> int:
    """The seeds for which a change by `factor` is reported in the right direction, of `SEEDS`; any direction for 1."""
    found = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        before, after = ([noise(chance, deviation) for _ in range(count)] for _ in range(2))
        change = time_change(before, [factor * each for each in after])
        found += change is not None and (factor == 1 or (change.after > change.before) is (factor > 1))
    return found


@pytest.mark.parametrize("count", [MIN_STEPS, 24])
@pytest.mark.parametrize("deviation", [0.0, 0.03, 0.3])
@pytest.mark.parametrize("noise", [normal, one_sided, with_spikes, of_two_modes])
def test_noise_is_change_once_in_hundred_seeds(noise: Noise, deviation: float, count: int) -> None:
    if deviation or noise is not one_sided:
        assert reported(noise, deviation, 1.0, count) <= SEEDS / 100


@pytest.mark.parametrize(("noise", "factor"), [(normal, 1.1), (normal, 0.9), (one_sided, 1.1)])
def test_tenth_is_found_in_small_noise(noise: Noise, factor: float) -> None:
    assert reported(noise, 0.03, factor, 24) >= 0.97 * SEEDS


def test_durations_are_medians_with_minimal_margin() -> None:
    before, after = [0.2] * MIN_STEPS, [0.3] * MIN_STEPS
    change = time_change(before, after)
    assert change is not None
    assert (change.before, change.after, change.margin) == (0.2, 0.3, pytest.approx(0.004))
    assert time_change(before, [0.2039] * MIN_STEPS) is None


def test_drift_as_large_as_change_hides_it() -> None:
    half = MIN_STEPS // 2
    # The step before the change took a tenth longer in its second half than in its first.
    drifting = [1.0] * half + [1.1] * half
    assert time_change(drifting, [1.14] * MIN_STEPS) is None
    assert time_change(drifting, [1.3] * MIN_STEPS) is not None


def test_few_steps_give_no_answer() -> None:
    assert time_change([1.0] * (MIN_STEPS - 1), [2.0] * MIN_STEPS) is None
    assert time_change([1.0] * MIN_STEPS, [2.0] * (MIN_STEPS - 1)) is None
