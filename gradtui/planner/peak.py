"""Forecast the peak of a step from its profile and from what a change does to each phase. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.planner.replay import Peaks
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase


@dataclass(frozen=True)
class StepChange:
    """What a change does to the memory of a step, in bytes."""

    before: Peaks
    after: Peaks
    activations: int
    gradients: int
    optimizer_state: int


def peak_of(profile: StepMemoryProfiled, change: StepChange | None = None) -> tuple[int, Phase]:
    """Return the highest total of a profiled step, and its phase; with a change, what they would be.

    The forward changes by its repeated peak, and so does backward. What runs between them holds the activations, and the
    optimizer's step and what follows it the gradients. All phases hold the optimizer state.
    """
    changes: dict[Phase, int] = {}
    if change is not None:
        changes = {
            Phase.FORWARD: change.after.forward - change.before.forward,
            Phase.OTHER: change.activations,
            Phase.BACKWARD: change.after.backward - change.before.backward,
            Phase.OPTIMIZER: change.gradients,
            # The gradients of the step before are there until they are cleared.
            Phase.DATA: change.gradients,
            Phase.ZERO_GRAD: change.gradients,
        }
        changes = {phase: changes.get(phase, 0) + change.optimizer_state for phase in Phase}
    found = {phase: total + changes.get(phase, 0) for phase, total in _highest(profile).items()}
    phase = max(found, key=found.__getitem__)
    return found[phase], phase


def _highest(profile: StepMemoryProfiled) -> dict[Phase, int]:
    found = {profile.peak_phase: profile.peak}
    ends = [begin for _, begin in profile.phases[1:]]
    for (phase, begin), end in zip(profile.phases, [*ends, len(profile.curve)]):
        # A point of the curve stands for a stretch of totals, so one that two phases share belongs to the later one.
        found[phase] = max((found.get(phase, 0), *profile.curve[begin:end]))
    return found
