"""The peaks of the phases of a step, which a forecast of its peak starts from. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol.events import MemoryMeasured, StepMemoryProfiled, StepPeaks
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_curve import measured_phases
from gradtui.run.state.run_state import RunState


def step_peaks(state: RunState, step: int | None = None) -> StepPeaks | None:
    """Return the peaks of a step with what trains and is checkpointed now: the newest profiled one, or the newest measured one.

    Returns None if no such step's peaks are known.

    With a `step`, only that profile or later measurements count.
    """
    if state.step_profile is not None:
        if step not in (None, state.step_profile.step) or not state.step_profile.phases:
            return None
        # Another choice has another peak, until a step is profiled with it.
        if state.profiled_under != (state.tree.trainable, state.tree.checkpointed):
            return None
        profile = state.step_profile
        return replace(profile.in_blocks or _in_blocks(profile), keeps_gradients=_keeps_gradients(state, profile))
    measured = measured_phases(state)
    if not measured or measured[0].step < (step or 0) or any(each.devices for each in measured):
        # The peaks of several devices are upper bounds, whose differences say nothing.
        return None
    return _measured(measured, accumulates=state.micro_steps > state.step)


def profiled_peaks(profile: StepMemoryProfiled) -> StepPeaks:
    """Return the peaks of a profile, which must have at least one phase."""
    curve = profile.curve
    return StepPeaks(
        profile.step, tuple(_stretches(profile)), curve[0], curve[-1], min(curve),
        profile.backward_of_models, profile.backward_of_loss, scratch=profile.optimizer_scratch,
    )  # fmt: skip


def _in_blocks(profile: StepMemoryProfiled) -> StepPeaks:
    """Return the peaks of a profile, on CUDA in blocks of the allocator. An older recording has only their highest total.

    The difference is nearly all of parameters, gradients and optimizer state, and so it is the same at all times.
    """
    peaks, rounding = profiled_peaks(profile), profile.blocks - profile.peak if profile.blocks is not None else 0
    models, loss = (each and each + rounding for each in (peaks.backward_of_models, peaks.backward_of_loss))
    return replace(
        peaks,
        phases=tuple((phase, highest + rounding) for phase, highest in peaks.phases),
        first=peaks.first + rounding,
        last=peaks.last + rounding,
        lowest=peaks.lowest + rounding,
        backward_of_models=models,
        backward_of_loss=loss,
    )


def _stretches(profile: StepMemoryProfiled) -> list[tuple[Phase, int]]:
    ends = [begin for _, begin in profile.phases[1:]]
    # A point of the curve stands for several totals, so one that two phases share belongs to the later one.
    found = [
        (phase, max(profile.curve[begin : max(end, begin + 1)]))
        for (phase, begin), end in zip(profile.phases, [*ends, len(profile.curve)])
    ]
    # The peak may be in such a point.
    of_peak = [(highest, at) for at, (phase, highest) in enumerate(found) if phase is profile.peak_phase]
    if of_peak:
        highest, at = max(of_peak)
        found[at] = profile.peak_phase, max(highest, profile.peak)
    return found


def _keeps_gradients(state: RunState, profile: StepMemoryProfiled) -> bool:
    """Return whether gradients are there at the end of a forward before which they are cleared."""
    forward, backward = (state.phases[phase].last for phase in (Phase.FORWARD, Phase.BACKWARD))
    phases = [phase for phase, _ in profile.phases]
    if forward is None or backward is None or Phase.FORWARD not in phases or phases.count(Phase.BACKWARD) > 1:
        return False
    after = phases[phases.index(Phase.FORWARD) :]
    return Phase.ZERO_GRAD not in after and 2 * forward.held.gradients > backward.held.gradients > 0


def _measured(phases: list[MemoryMeasured], *, accumulates: bool) -> StepPeaks:
    """Return the peaks that the allocator counted. Checked on a simulated device only."""
    totals = [each.held.total or 0 for each in phases]
    # What autograd keeps was not there when the step began.
    first = totals[0] - (phases[0].held.activations or 0)
    peaks = [(each.phase, each.peak or 0) for each in phases]
    if accumulates:
        # Each phase has the highest peak of all micro-steps.
        peaks[:0] = [each for each in peaks if each[0] in (Phase.FORWARD, Phase.BACKWARD)]
    elif phases[0].held.gradients:
        # Those of the step before, which are cleared between forward and backward.
        peaks.insert(1, (Phase.ZERO_GRAD, totals[0]))
    of_optimizer = next((each for each in phases if each.phase is Phase.OPTIMIZER), None)
    scratch = (of_optimizer.peak or 0) - (of_optimizer.held.total or 0) if of_optimizer is not None else 0
    lowest = min(first, *totals)
    return StepPeaks(
        phases[0].step, tuple(peaks), first, totals[-1], lowest, scratch=max(0, scratch), steps_at_once=True
    )  # fmt: skip
