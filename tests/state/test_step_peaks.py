"""The peaks that a forecast starts from: of a profile, or of the phases where the allocator counts them."""

from __future__ import annotations

import pytest

from gradtui.protocol.events import MemoryMeasured, StepMemoryProfiled, StepPeaks
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.state.run_state import RunState
from gradtui.state.step_peaks import step_peaks


def measured(phase: Phase, total: int, peak: int | None, activations: int = 0, step: int = 5) -> MemoryMeasured:
    held = MemoryBytes(100, 0, 0, 0, activations, total - 100 - activations, total)
    return MemoryMeasured(0.0, step, phase, held, peak, peak is not None, True)


def state_of(*phases: MemoryMeasured) -> RunState:
    state = RunState()
    for each in phases:
        state.phases[each.phase].last = each
    return state


PHASES = (
    measured(Phase.FORWARD, 160, 170, 60),
    measured(Phase.BACKWARD, 140, 220),
    measured(Phase.OPTIMIZER, 140, 150),
)


def test_the_allocators_peaks_are_those_of_the_phases() -> None:
    peaks = step_peaks(state_of(*PHASES), 5)
    expected = StepPeaks(5, ((Phase.FORWARD, 170), (Phase.BACKWARD, 220), (Phase.OPTIMIZER, 150)), 100, 140, 100)
    assert peaks == expected
    assert peaks is not None
    assert peaks.highest == (Phase.BACKWARD, 220)


@pytest.mark.parametrize(
    "phases",
    [
        PHASES[:2],
        (*PHASES[:2], measured(Phase.OPTIMIZER, 140, None)),
        (*PHASES[:2], measured(Phase.OPTIMIZER, 140, 150, step=6)),
    ],
    ids=["no optimizer step yet", "no peak", "two steps"],
)
def test_without_the_peaks_of_one_whole_step_nothing_is_known(phases: tuple[MemoryMeasured, ...]) -> None:
    assert step_peaks(state_of(*phases)) is None


def test_measurements_from_before_the_recorded_step_do_not_count() -> None:
    assert step_peaks(state_of(*PHASES), 6) is None


def test_a_profile_comes_first_and_only_of_the_asked_step() -> None:
    state = state_of(*PHASES)
    phases = (Phase.FORWARD, 0), (Phase.BACKWARD, 2)
    state.traced = StepMemoryProfiled(0.0, 7, (90, 130, 200, 120), 4, phases, 210, Phase.BACKWARD, -1, (), (), True)
    peaks = step_peaks(state, 7)
    assert peaks == StepPeaks(7, ((Phase.FORWARD, 130), (Phase.BACKWARD, 210)), 90, 120, 90)
    assert step_peaks(state, 8) is None
