"""Forecast the peak of a step from its profile and from what a change does to each phase. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradtui.planner.replay import Peaks
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase


@dataclass(frozen=True)
class StepChange:
    """What a change does to the memory of a step, in bytes."""

    before: Peaks
    after: Peaks
    gradients: int
    optimizer_state: int


def peak_of(profile: StepMemoryProfiled, change: StepChange | None = None) -> tuple[int, Phase]:
    """Return the highest total of a profiled step, and its phase; with a change, what they would be.

    The forward and the models' part of backward change by their repeated peaks. What runs between them, and the backward of
    the loss, changes by what is alive when backward begins. What follows backward changes by the gradients. All phases hold
    the optimizer state.
    """
    found: dict[Phase, int] = {}
    has_gradients = False
    for phase, highest in _highest(profile):
        has_gradients |= phase in (Phase.OPTIMIZER, Phase.DATA, Phase.ZERO_GRAD)
        total = highest if change is None else highest + change.optimizer_state
        if change is not None:
            total += _change(profile, phase, highest, change, has_gradients=has_gradients)
        found[phase] = max(found.get(phase, total), total)
        # The gradients of the step before are there until they are cleared.
        has_gradients |= phase is Phase.BACKWARD
    phase = max(found, key=found.__getitem__)
    return found[phase], phase


def _change(profile: StepMemoryProfiled, phase: Phase, highest: int, change: StepChange, *, has_gradients: bool) -> int:
    before, after = change.before, change.after
    if phase is Phase.FORWARD:
        return after.forward - before.forward
    if phase is not Phase.BACKWARD:
        return change.gradients if has_gradients else after.begin - before.begin
    totals = []
    if profile.backward_of_models is not None:
        totals.append(profile.backward_of_models + after.backward - before.backward)
    if profile.backward_of_loss is not None:
        totals.append(profile.backward_of_loss + after.begin - before.begin)
    return max(totals) - highest if totals else after.backward - before.backward


def _highest(profile: StepMemoryProfiled) -> Iterator[tuple[Phase, int]]:
    """Yield each phase of the step in its order, and its highest total."""
    ends = [begin for _, begin in profile.phases[1:]]
    for (phase, begin), end in zip(profile.phases, [*ends, len(profile.curve)]):
        # A point of the curve stands for a stretch of totals, so one that two phases share belongs to the later one.
        highest = max(profile.curve[begin : max(end, begin + 1)])
        yield phase, max(highest, profile.peak) if phase is profile.peak_phase else highest
