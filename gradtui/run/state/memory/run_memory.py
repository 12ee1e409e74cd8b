"""The memory of the run in the figures that the whole screen shares: now, at its peak, and in its spikes. Pure.

Bytes that no category explains before the first forward (Python, libraries, data) are subtracted: training has not added them.
"""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.events import MemorySpikeFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_curve import StepCurve, step_curve
from gradtui.run.state.memory.step_peaks import profiled_peaks
from gradtui.run.state.parts.bounds import Bound, bound_of_known
from gradtui.run.state.parts.phase_record import PhaseRecord
from gradtui.run.state.run_state import RunState

_AS_HIGH = 1.02
"""Peaks of steps of one kind differ by less than this factor."""
_AT_STEP_END = ("optimizer", "backward", "forward")


@dataclass(frozen=True)
class RunPeak:
    """The highest total of the run so far."""

    bytes: int
    whole: int
    """With the bytes from before the first forward."""
    step: int
    phase: Phase | None
    """None if it is of one of the steps from `since` to `step`, of which only the last was read."""
    bound: Bound
    """`at least` where no allocator has kept the peak of every step, `at most` where the peaks of several devices add up."""
    since: int = 0
    record: PhaseRecord | None = None
    """That of its phase, if it is known."""
    module: int = -1
    """Index of the module whose operation caused it, as the profile of its step says; -1 where that is unknown."""


@dataclass(frozen=True)
class MemoryPeak:
    """The peak that the screen shows, in bytes: see `memory_peak`."""

    bytes: int
    step: int
    phase: Phase | None
    """As in `RunPeak`."""
    bound: Bound
    """As in `RunPeak`, of its step. A profiled step has an exact one."""
    curve: StepCurve | None
    """The course of memory within its step; None where that is unknown."""
    since: int = 0


@dataclass(frozen=True)
class PhaseTotal:
    """The newest known total at the end of a phase."""

    bytes: int
    step: int


def phase_total(state: RunState, phase: Phase) -> PhaseTotal | None:
    """Return the newest total at the end of a phase; None while unknown.

    That of forward, backward and optimizer step is of nearly every step; a breakdown by category is of a sampled step.
    """
    record = state.phases[phase]
    steps, last = record.totals.steps, record.last
    if steps and (last is None or steps[-1] >= last.step):
        return PhaseTotal(above_load(state, round(record.totals.values[-1])), steps[-1])
    if last is None or last.held.total is None:
        return None
    return PhaseTotal(above_load(state, last.held.total), last.step)


def phase_peak(state: RunState, phase: Phase) -> tuple[int, Bound] | None:
    """Return the highest total so far within a phase, and what it says; None while unknown."""
    record, profile = state.phases[phase], state.step_profile
    within = profiled_peaks(profile).phases if profile is not None and profile.phases else ()
    known = [record.peak, *(peak for each, peak in within if each is phase)]
    highest = max((peak for peak in known if peak is not None), default=None)
    return None if highest is None else (above_load(state, highest), phase_bound(state, record))


def phase_bound(state: RunState, record: PhaseRecord) -> Bound:
    """Return what the highest total of a phase says: a lower bound, if another step may have been higher."""
    memory = state.step_memory
    is_all = not len(record.totals) or (memory.peaks_exact and not memory.has_gaps)
    return bound_of_known(record.peak_bound, is_all=is_all)


def above_load(state: RunState, size: int) -> int:
    """Return a total without the bytes from before the first forward."""
    return max(0, size - (state.held_since_load or 0))


def memory_now(state: RunState) -> int | None:
    """Return the bytes held at the end of the newest measured phase; None while unknown."""
    measured = [record.last for record in state.phases.values() if record.last is not None]
    last = max(reversed(measured), key=lambda event: event.at) if measured else None
    newest = last.held.total if last is not None else None
    of_step = state.step_memory.newest
    if of_step is not None and (last is None or of_step.step >= last.step):
        totals = [getattr(of_step, phase) for phase in _AT_STEP_END]
        newest = next((total for total in totals if total is not None), newest)
    return None if newest is None else above_load(state, newest)


def memory_step(state: RunState) -> int | None:
    """Return the step of `memory_now`; None while it is unknown."""
    steps = [record.last.step for record in state.phases.values() if record.last is not None]
    of_step = state.step_memory.newest
    return max([*steps, *([of_step.step] if of_step is not None else [])], default=None)


def memory_peak(state: RunState) -> MemoryPeak | None:
    """Return the one peak that every part of the screen shows; None while no total is known.

    It is that of the profiled step, which has owners, as long as no total since the newest change is clearly higher. Peaks of
    steps of one kind differ by less. Until a step is profiled after a change, it is that of the step before the change.
    """
    curve, highest = step_curve(state), state.step_memory.highest
    if curve is not None and (curve.has_every_change or highest is None):
        is_newer = highest is None or highest.step <= state.changed_after < curve.step
        if highest is None or is_newer or highest.bytes <= curve.peak * _AS_HIGH:
            return MemoryPeak(above_load(state, curve.peak), curve.step, curve.peak_phase, curve.bound, curve)
    if highest is None:
        return None
    own = curve if curve is not None and curve.step == highest.step else None
    bound = bound_of_known(highest.bound, is_all=state.step_memory.peaks_exact)
    return MemoryPeak(above_load(state, highest.bytes), highest.step, highest.phase, bound, own, highest.since)


def run_peak(state: RunState) -> RunPeak | None:
    """Return the highest total so far; None while no peak is known."""
    found, unread = highest_peak(state), state.step_memory.highest_unread
    if found is None:
        return None
    phase, record = found
    whole, is_all = record.peak or 0, state.step_memory.peaks_exact
    if unread is not None and unread.bytes > whole:
        bound = bound_of_known(unread.bound, is_all=is_all)
        return RunPeak(above_load(state, unread.bytes), unread.bytes, unread.step, None, bound, unread.since)
    profile = state.step_profile
    is_profiled = profile is not None and profile.step == record.peak_step and record.peak_bound == "at least"
    # The total at a phase's end also has bytes of the profile's log, and no module.
    if profile is not None and is_profiled and profile.peak <= whole <= profile.peak * _AS_HIGH:
        whole, phase, module = profile.peak, profile.peak_phase, profile.peak_module
        return RunPeak(above_load(state, whole), whole, profile.step, phase, "at least", module=module)
    bound = bound_of_known(record.peak_bound, is_all=is_all)
    return RunPeak(above_load(state, whole), whole, record.peak_step, phase, bound, record=record)


def highest_peak(state: RunState) -> tuple[Phase, PhaseRecord] | None:
    """Return the phase with the highest total so far, None while no peak is known."""
    known = [(phase, record) for phase, record in state.phases.items() if record.peak is not None]
    return max(known, key=lambda entry: entry[1].peak or 0, default=None)


def largest_spike(state: RunState) -> MemorySpikeFound | None:
    """Return the highest spike of those that are kept; None if there was none."""
    return max(state.step_memory.spikes, key=lambda spike: spike.peak, default=None)


def includes(spike: MemorySpikeFound, step: int) -> bool:
    """Return whether a step is one of those of a spike, which may last for several."""
    return spike.step <= step < spike.step + max(1, spike.steps)


def is_spike(state: RunState, step: int) -> bool:
    """Return whether a step belongs to one of the spikes that are kept."""
    return any(includes(spike, step) for spike in state.step_memory.spikes)
