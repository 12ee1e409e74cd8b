"""Steps whose memory peak stands out from the steps around them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.memory.spikes import Spike, SpikeDetector
from gradtui.protocol.vocabulary import Phase

MIB = 1 << 20
USUAL = 100 * MIB
BEFORE = 12
"""Steps before a first peak can stand out."""


def spikes(peaks: Iterable[int], phases: Sequence[Phase] = (Phase.BACKWARD,)) -> list[Spike]:
    """The spikes among the peaks of the steps 1, 2, …"""
    detector = SpikeDetector()
    found = [detector.add(step, phase, peak) for step, (peak, phase) in enumerate(zip(peaks, cycle(phases)), start=1)]
    return [each for each in (*found, detector.finish()) if each is not None]


def noisy_peaks(steps: int, share: float, seed: int = 0) -> list[int]:
    """Peaks of batches of different lengths: up to this share above the usual one."""
    generator = random.Random(seed)
    return [round(USUAL * (1 + generator.uniform(0, share))) for _ in range(steps)]


def test_equal_peaks_have_none() -> None:
    assert spikes([USUAL] * 200) == []


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_noisy_peaks_have_none(share: float, seed: int) -> None:
    # Of numbers between 0 and 1 that are evenly distributed, the outer fence is at 0.75 + 3 * 0.5.
    assert spikes(noisy_peaks(300, share, seed)) == []


def test_alternating_gan_steps_do_not_stand_out() -> None:
    assert spikes([USUAL, 3 * USUAL] * 100) == []


@pytest.mark.parametrize("growth", [1_000, MIB, 20 * MIB])
def test_peaks_that_grow_by_same_amount_have_none(growth: int) -> None:
    assert spikes(USUAL + growth * step for step in range(300)) == []


def test_a_peak_of_one_step() -> None:
    peaks = [USUAL] * 20 + [2 * USUAL] + [USUAL] * 20
    assert spikes(peaks) == [Spike(21, Phase.BACKWARD, 2 * USUAL, USUAL, 1)]


def test_spike_is_told_with_first_step_after_it() -> None:
    detector = SpikeDetector()
    for step in range(1, 21):
        assert detector.add(step, Phase.FORWARD, USUAL) is None
    assert detector.add(21, Phase.OPTIMIZER, 2 * USUAL) is None
    spike = detector.add(22, Phase.FORWARD, USUAL)
    assert spike == Spike(21, Phase.OPTIMIZER, 2 * USUAL, USUAL, 1)
    assert detector.finish() is None


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_short_spike_has_highest_peak_and_phase(steps: int) -> None:
    above = [(2 + step) * USUAL for step in range(steps)]
    phases = [Phase.FORWARD] * 30 + [Phase.OPTIMIZER] * (steps - 1) + [Phase.BACKWARD] + [Phase.FORWARD] * 30
    assert spikes([USUAL] * 30 + above + [USUAL] * 30, phases) == [
        Spike(31, Phase.BACKWARD, (1 + steps) * USUAL, USUAL, steps)
    ]


def test_more_memory_from_then_on_is_no_spike() -> None:
    assert spikes([USUAL] * 30 + [2 * USUAL] * 200) == []


def test_peak_above_new_level_stands_out() -> None:
    peaks = [USUAL] * 30 + [2 * USUAL] * 30 + [3 * USUAL] + [2 * USUAL] * 30
    assert spikes(peaks) == [Spike(61, Phase.BACKWARD, 3 * USUAL, 2 * USUAL, 1)]


def test_less_memory_from_then_on_is_no_spike() -> None:
    assert spikes([2 * USUAL] * 30 + [USUAL] * 200) == []


def test_each_of_several_spikes_is_told() -> None:
    peaks = [USUAL] * 100
    for step in (30, 50, 90):
        peaks[step - 1] = 2 * USUAL
    assert [spike.step for spike in spikes(peaks)] == [30, 50, 90]


def test_that_of_last_step_is_told_at_end() -> None:
    detector = SpikeDetector()
    for step in range(1, 31):
        detector.add(step, Phase.FORWARD, USUAL)
    detector.add(31, Phase.FORWARD, 2 * USUAL)
    assert detector.finish() == Spike(31, Phase.FORWARD, 2 * USUAL, USUAL, 1)
    assert detector.finish() is None


@pytest.mark.parametrize("before", [0, 1, BEFORE - 1, BEFORE, BEFORE + 1])
def test_a_peak_stands_out_only_after_some_steps(before: int) -> None:
    found = spikes([USUAL] * before + [2 * USUAL] + [USUAL] * 3)
    assert [spike.step for spike in found] == ([before + 1] if before >= BEFORE else [])


@pytest.mark.parametrize("more", [1, MIB - 1, MIB, MIB + 1, 5 * MIB, 5 * MIB + 1])
def test_small_differences_are_none(more: int) -> None:
    """A peak stands out by more than a mebibyte, and by more than a twentieth of the usual peak."""
    small = 10 * MIB
    assert bool(spikes([small] * 30 + [small + more] + [small])) == (more > MIB)
    assert bool(spikes([USUAL] * 30 + [USUAL + more] + [USUAL])) == (more > USUAL // 20)


def test_far_peak_stands_out_among_noise() -> None:
    peaks = noisy_peaks(100, 0.2)
    peaks[60] = 3 * USUAL
    (spike,) = spikes(peaks)
    assert (spike.step, spike.peak, spike.steps) == (61, 3 * USUAL, 1)
    assert USUAL <= spike.usual <= round(1.2 * USUAL)


@given(st.lists(st.integers(0, 1 << 40), max_size=100))
def test_spike_is_step_above_most_before_it(peaks: list[int]) -> None:
    for spike in spikes(peaks):
        assert spike.step > BEFORE
        assert 1 <= spike.steps <= 4
        own = peaks[spike.step - 1 : spike.step - 1 + spike.steps]
        assert spike.peak == max(own)
        assert min(own) > spike.usual + MIB
        assert sum(peak < min(own) for peak in peaks[: spike.step - 1]) * 2 > min(spike.step - 1, BEFORE)
