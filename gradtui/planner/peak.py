"""Forecast the peak of a step from the measured peaks of its phases and from what a change does to each phase. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.planner.cheapest import Limits
from gradtui.planner.replay import Peaks
from gradtui.protocol.forecasts import StepPeaks
from gradtui.protocol.vocabulary import Phase

_OF_GRADIENTS = (Phase.ZERO_GRAD, Phase.BACKWARD)


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
    scratch: int = 0
    """What the optimizer's step takes beyond what is there when it begins or ends."""


class _Stretch(NamedTuple):
    """A stretch of a phase in the measured step."""

    phase: Phase
    highest: int
    """The highest total in it, in bytes."""
    has_gradients: bool
    """Gradients of the step before, or of an earlier backward of this step, are there when it begins."""
    is_between: bool
    """It begins after the forward and before its backward: what autograd keeps is there."""


def accumulates(peaks: StepPeaks) -> bool:
    """Return whether a backward of the step adds to gradients that are there already."""
    return any(each.has_gradients for each in _stretches(peaks) if each.phase is Phase.BACKWARD)


def peak_of(peaks: StepPeaks, change: StepChange) -> tuple[int, Phase]:
    """Return the highest total of a measured step with a change, and its phase.

    The forward and the models' part of backward change by their repeated peaks. What runs between them, and the backward of
    the loss, changes by what is alive when backward begins. What begins with gradients changes by them too. All phases hold
    the optimizer state, and its step takes more or less besides.
    """
    found: dict[Phase, int] = {}
    for each in _stretches(peaks):
        total = each.highest + change.optimizer_state + _change(peaks, each, change)
        found[each.phase] = max(found.get(each.phase, total), total)
    phase = max(found, key=found.__getitem__)
    return found[phase], phase


def limits_for(peaks: StepPeaks, room: int, change: StepChange) -> Limits | None:
    """Return the limits of a repeated step with which `peak_of` is at most `room`; None if no repeated step has such a peak.

    Args:
        peaks: the peaks of a step.
        room: bytes that there are.
        change: the change without checkpoints.
    """
    before, state = change.before, change.optimizer_state
    unlimited = peaks.highest[1] + before.backward + room
    limits = {"forward": unlimited, "end": unlimited, "backward": unlimited}

    def limit(name: str, highest: int | None, repeated: int) -> None:
        if highest is not None:
            limits[name] = min(limits[name], room - state - highest + repeated)

    for each in _stretches(peaks):
        held = change.gradients if each.has_gradients else 0
        if each.phase is Phase.BACKWARD:
            of_models, of_loss = _parts_of_backward(peaks, each)
            # Units then have the peaks of a backward that adds to gradients: they are the higher ones.
            if each.has_gradients or before.adding is None:
                limit("backward", of_models, _backward(before, each))
            limit("end", of_loss + held if of_loss is not None else None, before.begin)
        elif each.is_between:
            limit("end", each.highest + held, before.begin)
        elif each.phase is Phase.FORWARD:
            limit("forward", each.highest + held, before.forward)
        elif each.highest + held + state + _scratch(each, change) > room:
            return None
    return Limits(**limits)


def _stretches(peaks: StepPeaks) -> Iterator[_Stretch]:
    """Yield the stretches of a step in their order.

    Gradients are there from a backward until `zero_grad`, or in all phases if that fills them with zeros. A step in which
    `zero_grad` runs before any backward begins with those of the step before.
    """
    keeps = peaks.keeps_gradients
    has_gradients = keeps or next((p is Phase.ZERO_GRAD for p, _ in peaks.phases if p in _OF_GRADIENTS), False)
    has_activations = is_cleared = False
    for phase, highest in peaks.phases:
        # A script that clears the gradients between forward and backward is in no call of a model then.
        yield _Stretch(phase, highest, has_gradients, has_activations and (is_cleared or phase is not Phase.FORWARD))
        if phase is Phase.FORWARD:
            has_activations = True
        elif phase is Phase.BACKWARD:
            has_gradients, has_activations, is_cleared = True, False, False
        elif phase is Phase.ZERO_GRAD:
            has_gradients, is_cleared = keeps, has_activations


def _parts_of_backward(peaks: StepPeaks, stretch: _Stretch) -> tuple[int | None, int | None]:
    """Return the highest total of the models' part of a backward and that of the loss; None where it is unknown."""
    of_models, of_loss = peaks.backward_of_models, peaks.backward_of_loss
    if of_models is None and of_loss is None:
        return stretch.highest, None
    # They are the highest of all backwards in the step.
    return (
        min(of_models, stretch.highest) if of_models is not None else None,
        min(of_loss, stretch.highest) if of_loss is not None else None,
    )


def _backward(peaks: Peaks, stretch: _Stretch) -> int:
    """Return the repeated peak of a backward."""
    return peaks.adding if stretch.has_gradients and peaks.adding is not None else peaks.backward


def _change(peaks: StepPeaks, stretch: _Stretch, change: StepChange) -> int:
    before, after = change.before, change.after
    held, is_new = (change.gradients_now, change.gradients) if stretch.has_gradients else (0, 0)

    def grown(total: int, was: int, becomes: int) -> int:
        outside = max(0, total - _lowest(peaks, change.gradients_now) - was)
        return becomes - was + round(outside * (change.batch_scale - 1))

    if stretch.phase is Phase.BACKWARD:
        of_models, of_loss = _parts_of_backward(peaks, stretch)
        totals = []
        # The gradients are part of the repeated backward.
        if of_models is not None:
            totals.append(of_models + grown(of_models, _backward(before, stretch), _backward(after, stretch)))
        if of_loss is not None:
            totals.append(of_loss + is_new + grown(of_loss - held, before.begin, after.begin))
        return max(totals) - stretch.highest
    if stretch.is_between:
        return is_new + grown(stretch.highest - held, before.begin, after.begin)
    if stretch.phase is Phase.FORWARD:
        return is_new + grown(stretch.highest - held, before.forward, after.forward)
    return is_new + _scratch(stretch, change)


def _scratch(stretch: _Stretch, change: StepChange) -> int:
    return change.scratch if stretch.phase is Phase.OPTIMIZER else 0


def _lowest(peaks: StepPeaks, gradients: int) -> int:
    """Return what is there without gradients and whatever depends on the batch.

    The step may begin with what is left of the one before, such as its outputs, and end with new gradients.
    """
    if next(_stretches(peaks)).has_gradients:
        return min(peaks.lowest, peaks.first - gradients, peaks.last - gradients)
    are_new = 2 * (peaks.last - peaks.first) > gradients
    return min(peaks.lowest, peaks.last - gradients if are_new else peaks.last)
