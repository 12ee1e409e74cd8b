"""Forecast the peak of a step from the measured peaks of its phases and from what a change does to each phase. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.planner.cheapest import Limits
from gradtui.planner.replay import Peaks
from gradtui.protocol.forecasts import StepPeaks
from gradtui.protocol.vocabulary import Phase

_WITH_GRADIENTS = (Phase.OPTIMIZER, Phase.DATA, Phase.ZERO_GRAD)
"""Phases in which the gradients of this step, or of the one before, are there."""


@dataclass(frozen=True)
class StepChange:
    """What a change does to the memory of a step, in bytes."""

    before: Peaks
    after: Peaks
    gradients: int
    optimizer_state: int
    batch_scale: float = 1.0
    """How much larger the batch is. What a phase holds besides its repeated operations, parameters and optimizer state is
    taken to grow with it."""
    gradients_now: int = 0
    """Bytes of `.grad` without the change."""


def peak_of(peaks: StepPeaks, change: StepChange) -> tuple[int, Phase]:
    """Return the highest total of a measured step with a change, and its phase.

    The forward and the models' part of backward change by their repeated peaks. What runs between them, and the backward of
    the loss, changes by what is alive when backward begins. What follows backward changes by the gradients. All phases hold
    the optimizer state.
    """
    found: dict[Phase, int] = {}
    has_gradients = False
    for phase, highest in peaks.phases:
        has_gradients |= phase in _WITH_GRADIENTS
        total = highest + change.optimizer_state
        total += _change(peaks, phase, highest, change, has_gradients=has_gradients)
        found[phase] = max(found.get(phase, total), total)
        # The gradients of the step before are there until they are cleared.
        has_gradients |= phase is Phase.BACKWARD
    phase = max(found, key=found.__getitem__)
    return found[phase], phase


def limits_for(peaks: StepPeaks, before: Peaks, room: int, gradients: int, state: int) -> Limits | None:
    """Return the limits of a repeated step with which `peak_of` is at most `room`; None if no repeated step has such a peak.

    Args:
        peaks: the peaks of a step.
        before: the peaks of that step, repeated.
        room: bytes that there are.
        gradients: bytes of gradients that a change adds.
        state: bytes of optimizer state that it adds.
    """
    unlimited = peaks.highest[1] + before.backward + room
    limits = {"forward": unlimited, "end": unlimited, "backward": unlimited}

    def limit(name: str, highest: int | None, repeated: int) -> None:
        if highest is not None:
            limits[name] = min(limits[name], room - state - highest + repeated)

    has_gradients = False
    for phase, highest in peaks.phases:
        has_gradients |= phase in _WITH_GRADIENTS
        if phase is Phase.FORWARD:
            limit("forward", highest, before.forward)
        elif phase is Phase.BACKWARD:
            limit("backward", peaks.backward_of_models, before.backward)
            limit("end", peaks.backward_of_loss, before.begin)
            if peaks.backward_of_models is None and peaks.backward_of_loss is None:
                limit("backward", highest, before.backward)
        elif not has_gradients:
            limit("end", highest, before.begin)
        elif highest + gradients + state > room:
            return None
        has_gradients |= phase is Phase.BACKWARD
    return Limits(**limits)


def _change(peaks: StepPeaks, phase: Phase, highest: int, change: StepChange, *, has_gradients: bool) -> int:
    before, after = change.before, change.after

    def grown(total: int, was: int, becomes: int) -> int:
        outside = max(0, total - _lowest(peaks, change.gradients_now) - was)
        return becomes - was + round(outside * (change.batch_scale - 1))

    if phase is Phase.FORWARD:
        return grown(highest, before.forward, after.forward)
    if phase is not Phase.BACKWARD:
        return change.gradients if has_gradients else grown(highest, before.begin, after.begin)
    totals = []
    if peaks.backward_of_models is not None:
        total = peaks.backward_of_models
        totals.append(total + grown(total, before.backward, after.backward))
    if peaks.backward_of_loss is not None:
        total = peaks.backward_of_loss
        totals.append(total + grown(total, before.begin, after.begin))
    if totals:
        return max(totals) - highest
    return grown(highest, before.backward, after.backward)


def _lowest(peaks: StepPeaks, gradients: int) -> int:
    """Return what is there without gradients and whatever depends on the batch.

    The step may begin with what is left of the one before, such as its outputs, and end with new gradients.
    """
    are_new = 2 * (peaks.last - peaks.first) > gradients
    return min(peaks.lowest, peaks.last - gradients if are_new else peaks.last)
