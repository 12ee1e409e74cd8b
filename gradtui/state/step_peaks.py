"""The peaks of the phases of a step, which a forecast of its peak starts from. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import MemoryMeasured, StepMemoryProfiled, StepPeaks
from gradtui.protocol.vocabulary import Phase
from gradtui.state.run_state import RunState
from gradtui.state.step_curve import measured_phases


def step_peaks(state: RunState, step: int | None = None) -> StepPeaks | None:
    """Return the peaks of the newest profiled step, or of the newest measured one; None if no step's peaks are known.

    With a `step`, only that profile or later measurements count.
    """
    if state.traced is not None:
        return profiled_peaks(state.traced) if step in (None, state.traced.step) and state.traced.phases else None
    measured = measured_phases(state)
    return _measured(measured) if measured and measured[0].step >= (step or 0) else None


def profiled_peaks(profile: StepMemoryProfiled) -> StepPeaks:
    """Return the peaks of a profile, which must have at least one phase."""
    curve = profile.curve
    return StepPeaks(
        profile.step, tuple(_stretches(profile)), curve[0], curve[-1], min(curve),
        profile.backward_of_models, profile.backward_of_loss,
    )  # fmt: skip


def _stretches(profile: StepMemoryProfiled) -> Iterator[tuple[Phase, int]]:
    ends = [begin for _, begin in profile.phases[1:]]
    for (phase, begin), end in zip(profile.phases, [*ends, len(profile.curve)]):
        # A point of the curve stands for a stretch of totals, so one that two phases share belongs to the later one.
        highest = max(profile.curve[begin : max(end, begin + 1)])
        yield phase, max(highest, profile.peak) if phase is profile.peak_phase else highest


def _measured(phases: list[MemoryMeasured]) -> StepPeaks:
    """Return the peaks that the allocator counted. Not yet confirmed on a CUDA device."""
    totals = [each.held.total or 0 for each in phases]
    # What autograd keeps was not there when the step began.
    first = totals[0] - (phases[0].held.activations or 0)
    peaks = tuple((each.phase, each.peak or 0) for each in phases)
    return StepPeaks(phases[0].step, peaks, first, totals[-1], min(first, *totals))
