"""In which direction the loss goes, against courses whose direction is known."""

from __future__ import annotations

import math
import random

import pytest
from helpers.optimizer_runs import gan
from helpers.states import state_after

from gradtui.run.state.over_steps.loss_trend import COMPARED, LossDirection, LossTrend, direction_of, loss_trend
from gradtui.run.state.run_state import ModelChange, RunState


def noise(count: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(0.0, 1.0) for _ in range(count)]


@pytest.mark.parametrize(("slope", "direction"), [(-0.05, LossDirection.FALLING), (0.05, LossDirection.RISING)])
def test_slope_is_seen_through_noise_of_its_size(slope: float, direction: LossDirection) -> None:
    for seed in range(20):
        assert direction_of([slope * step + each for step, each in enumerate(noise(100, seed))]) is direction


def test_noise_alone_is_flat() -> None:
    directions = [direction_of(noise(COMPARED, seed)) for seed in range(1000)]
    assert directions.count(LossDirection.FLAT) >= 980


def test_a_short_course_and_one_without_noise() -> None:
    assert direction_of([1.0] * 9) is None
    assert direction_of([1.0] * 10) is LossDirection.FLAT
    assert direction_of([2.0] * 5 + [1.0] * 5) is LossDirection.FALLING
    assert direction_of([1 / step for step in range(1, 30)]) is LossDirection.FALLING
    assert direction_of([*[1.0] * 40, math.nan]) is None


def test_only_losses_of_present_main_optimizer_count() -> None:
    state = RunState()
    state.loss.extend(range(1, 61), [*map(float, range(40, 0, -1)), *map(float, range(20))])
    assert loss_trend(state) == LossTrend(LossDirection.FALLING, 1, 60)
    state.main_since = 41
    assert loss_trend(state) == LossTrend(LossDirection.RISING, 41, 60)
    state.main_since = 55
    assert loss_trend(state) is None


def test_losses_of_former_model_do_not_count() -> None:
    state = RunState()
    state.loss.extend(range(1, 61), [9.0] * 30 + [1.0] * 30)
    assert loss_trend(state) == LossTrend(LossDirection.FALLING, 1, 60)
    state.model_changes.append(ModelChange(30, "Net", replaces=True))
    assert loss_trend(state) == LossTrend(LossDirection.FLAT, 31, 60)


def test_alternating_optimizers_have_no_common_direction() -> None:
    state = state_after(*gan(40))
    assert len(state.loss) >= 20
    assert loss_trend(state) is None
