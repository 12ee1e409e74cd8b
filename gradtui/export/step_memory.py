"""The memory of every step in the summary: the peak of the run, and the steps whose peak stands out."""

from __future__ import annotations

from typing import Any

from gradtui.state.run_memory import run_peak
from gradtui.state.run_state import RunState


def step_memory(state: RunState) -> dict[str, Any]:
    """Return the peak of the run and its spikes, as JSON-ready data."""
    memory, peak = state.step_memory, run_peak(state)
    return {
        "peak": None
        if peak is None
        else {
            "step": peak.step,
            "since_step": peak.since or peak.step,
            "phase": peak.phase,
            "bytes": peak.whole,
            "exact": peak.is_exact,
        },
        "spike_count": memory.spike_count,
        "spike_count_exact": not memory.has_gaps,
        "spikes": [
            {
                "step": spike.step,
                "phase": spike.phase,
                "peak_bytes": spike.peak,
                "usual_bytes": spike.usual,
                "steps": spike.steps,
            }
            for spike in memory.spikes
        ],
    }
