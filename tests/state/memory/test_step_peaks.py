"""The peaks that a forecast starts from: of a profile, or of the phases where the allocator counts them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradtui.protocol.events import MemoryMeasured, StepMemoryProfiled, StepPeaks
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.state.memory.step_peaks import profiled_peaks, step_peaks
from gradtui.run.state.run_state import RunState


def measured(
    phase: Phase, total: int, peak: int | None, activations: int = 0, step: int = 5, gradients: int = 0
) -> MemoryMeasured:
    held = MemoryBytes(100, 0, gradients, 0, activations, total - 100 - activations - gradients, total)
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
    expected = StepPeaks(
        5, ((Phase.FORWARD, 170), (Phase.BACKWARD, 220), (Phase.OPTIMIZER, 150)), 100, 140, 100,
        scratch=150 - 140, steps_at_once=True,
    )  # fmt: skip
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
def test_nothing_is_known_without_whole_step(phases: tuple[MemoryMeasured, ...]) -> None:
    assert step_peaks(state_of(*phases)) is None


def test_measurements_from_before_recorded_step_do_not_count() -> None:
    assert step_peaks(state_of(*PHASES), 6) is None


def test_profile_comes_first_and_only_of_asked_step() -> None:
    state = state_of(*PHASES)
    phases = (Phase.FORWARD, 0), (Phase.BACKWARD, 2)
    state.step_profile = StepMemoryProfiled(
        0.0, 7, (90, 130, 200, 120), 4, phases, 210, Phase.BACKWARD, -1, (), (), True
    )
    state.profiled_under = state.tree.trainable, state.tree.checkpointed
    peaks = step_peaks(state, 7)
    assert peaks == StepPeaks(7, ((Phase.FORWARD, 130), (Phase.BACKWARD, 210)), 90, 120, 90)
    assert step_peaks(state, 8) is None


def test_the_peaks_in_blocks_come_first() -> None:
    state, phases = RunState(), ((Phase.FORWARD, 0), (Phase.BACKWARD, 2))
    blocks = StepPeaks(7, ((Phase.FORWARD, 512), (Phase.BACKWARD, 1024)), 512, 512, 512, scratch=64, block=512)
    profile = StepMemoryProfiled(
        0.0, 7, (90, 130, 200, 120), 4, phases, 210, Phase.BACKWARD, -1, (), (), True, blocks=1024, in_blocks=blocks
    )
    state.step_profile, state.profiled_under = profile, (state.tree.trainable, state.tree.checkpointed)
    assert step_peaks(state) == blocks
    # An older recording has the highest total of the blocks alone.
    state.step_profile = replace(profile, in_blocks=None)
    older = step_peaks(state)
    assert older is not None
    assert older.highest == (Phase.BACKWARD, 1024)
    assert older.block == 1


def test_gradients_at_forward_end_are_cleared_later() -> None:
    forward = measured(Phase.FORWARD, 170, 180, 60, gradients=10)
    peaks = step_peaks(state_of(forward, *PHASES[1:]))
    assert peaks is not None
    assert peaks.phases == ((Phase.FORWARD, 180), (Phase.ZERO_GRAD, 170), (Phase.BACKWARD, 220), (Phase.OPTIMIZER, 150))


def test_several_micro_steps_share_peaks_of_their_phases() -> None:
    state = state_of(*PHASES)
    state.step, state.micro_steps = 5, 10
    peaks = step_peaks(state)
    assert peaks is not None
    pair = (Phase.FORWARD, 170), (Phase.BACKWARD, 220)
    assert peaks.phases == (*pair, *pair, (Phase.OPTIMIZER, 150))


def test_profile_peak_belongs_to_its_stretch() -> None:
    """The curve has the highest total of each interval; the peak is in the second forward."""
    phases = (Phase.FORWARD, 0), (Phase.ZERO_GRAD, 2), (Phase.FORWARD, 3), (Phase.BACKWARD, 5)
    profile = StepMemoryProfiled(0.0, 7, (90, 120, 80, 130, 140, 60), 9, phases, 145, Phase.FORWARD, -1, (), (), True)
    expected = (Phase.FORWARD, 120), (Phase.ZERO_GRAD, 80), (Phase.FORWARD, 145), (Phase.BACKWARD, 60)
    assert profiled_peaks(profile).phases == expected


@pytest.mark.parametrize(
    ("phases", "at_forward", "keeps"),
    [
        ("zero_grad forward backward optimizer", 30, True),
        ("zero_grad forward backward optimizer", 10, False),
        ("forward backward optimizer", 30, True),
        ("forward zero_grad backward optimizer", 30, False),
        ("forward backward forward backward optimizer", 30, False),
    ],
)
def test_gradients_that_are_only_filled_with_zeros(phases: str, at_forward: int, keeps: bool) -> None:
    """Of 40 bytes of gradients at the end of backward, some are there at the end of forward: all but those of a frozen part."""
    state = state_of(
        measured(Phase.FORWARD, 170, None, gradients=at_forward), measured(Phase.BACKWARD, 170, None, gradients=40)
    )
    marks = tuple((Phase(name), at) for at, name in enumerate(phases.split()))
    state.step_profile = StepMemoryProfiled(0.0, 7, (1,) * 9, 9, marks, 1, Phase.FORWARD, -1, (), (), True)
    state.profiled_under = state.tree.trainable, state.tree.checkpointed
    peaks = step_peaks(state)
    assert peaks is not None
    assert peaks.keeps_gradients is keeps
