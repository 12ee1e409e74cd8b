"""The memory of every step in the summary: the peak of the run, and the steps whose peak stands out."""

from __future__ import annotations

from gradtui.protocol.summary_memory import DevicePeak, MemorySpike, RunPeak, StepMemory
from gradtui.run.state.run_memory import run_peak
from gradtui.run.state.run_state import RunState


def step_memory(state: RunState) -> StepMemory:
    """Return the peak of the run and its spikes."""
    memory, peak = state.step_memory, run_peak(state)
    phase = peak.phase.value if peak is not None and peak.phase is not None else None
    return StepMemory(
        peak=None
        if peak is None
        else RunPeak(
            peak.step,
            peak.since or peak.step,
            phase,
            peak.whole,
            peak.bound == "exact",
            peak.bound,
        ),
        spike_count=memory.spike_count,
        spike_count_exact=not memory.has_gaps,
        spikes=tuple(
            MemorySpike(spike.step, spike.phase and spike.phase.value, spike.peak, spike.usual, spike.steps)
            for spike in memory.spikes
        ),
        devices=tuple(DevicePeak(each.index, each.total, each.peak) for each in memory.devices),
    )
