"""Which values are spikes."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

import pytest

from gradtui.probe.gradients.spike_fence import SpikeFence


def spikes_in(values: Sequence[float], share: float = 0.5) -> list[int]:
    """Return the indices of the values that are spikes as they come."""
    fence, found = SpikeFence(share), []
    for index, value in enumerate(values):
        if fence.is_spike(value):
            found.append(index)
        fence.add(value)
    return found


def noisy(count: int, scale: float = 0.1) -> list[float]:
    draw = random.Random(0)
    return [2.0 + draw.gauss(0, scale) for _ in range(count)]


def test_the_limit_is_the_greatest_of_its_terms() -> None:
    values = [1.0, 1.2, 1.1, 1.3] * 4
    fence = SpikeFence(0.5)
    fence.extend(values)
    usual = statistics.median(values)
    # 4 * (1.3 - 1.15) = 0.6, ten deviations of 1.4826 * 0.1 are 1.4826, half of the median is 0.575.
    deviation = 1.4826 * statistics.median([abs(value - usual) for value in values])
    assert (fence.usual, fence.limit) == (usual, pytest.approx(usual + 10 * deviation))


def test_one_high_value() -> None:
    assert spikes_in([*noisy(40), 30.0, *noisy(40)]) == [40]
    assert spikes_in([*noisy(40), -30.0, math.nan, math.inf, *noisy(40)]) == []


def test_the_first_values_are_compared_with_none() -> None:
    assert spikes_in([*noisy(14), 30.0]) == []
    assert spikes_in([*noisy(16), 30.0]) == [16]


def test_spike_among_first_values_hides_no_later_one() -> None:
    values = noisy(60)
    values[10] = values[40] = 30.0
    assert spikes_in(values) == [40]


def test_values_in_row_are_one_spike_or_level() -> None:
    assert spikes_in([*noisy(40), 30.0, 31.0, 32.0, *noisy(40)]) == [40]
    high = [30.0 + each for each in noisy(60)]
    fence = SpikeFence(0.5)
    fence.extend([*noisy(40)])
    for value in high:
        fence.add(value)
    assert spikes_in([*noisy(40), *high]) == [40]
    assert fence.usual == pytest.approx(32, abs=0.2)


def test_what_comes_again_and_again_is_usual() -> None:
    values = noisy(400)
    values[20::20] = [30.0] * len(values[20::20])
    assert spikes_in(values) == [20, 40, 60]


def test_a_loss_that_has_become_tiny_may_vary() -> None:
    values = [math.exp(-step / 10) for step in range(200)]
    assert spikes_in([*values, 1e-3]) == []
    assert spikes_in([*values, 0.5]) == [200]


NOISE: dict[str, Callable[[random.Random, int], float]] = {
    "normal": lambda draw, _: 2.3 + draw.gauss(0, 0.1),
    "one squared error": lambda draw, _: draw.gauss(0, 1) ** 2,
    "exponential": lambda draw, _: draw.expovariate(1),
    "log-normal": lambda draw, _: math.exp(draw.gauss(0, 0.7)),
    "falling": lambda draw, step: math.exp(-step / 300 + draw.gauss(0, 0.3)),
    "rising": lambda draw, step: math.exp(step / 1_000 + draw.gauss(0, 0.2)),
    "about zero": lambda draw, _: draw.gauss(0, 1),
}


@pytest.mark.parametrize("name", NOISE)
def test_ordinary_noise_has_none(name: str) -> None:
    draw = random.Random(1)
    assert spikes_in([NOISE[name](draw, step) for step in range(2_000)]) == []
