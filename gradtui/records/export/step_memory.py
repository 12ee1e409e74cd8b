"""Memory in the summary: the peak of the run and of a step, the steps whose peak stands out, what is held, what failed."""

from __future__ import annotations

from gradtui.protocol.events import OutOfMemory
from gradtui.protocol.summary_memory import (
    Checkpointed,
    DevicePeak,
    FailedAllocation,
    LivingGraphs,
    MemorySpike,
    PeakHolding,
    RunPeak,
    StepMemory,
    StepPeak,
)
from gradtui.records.export.same_fields import taken
from gradtui.run.state.memory.run_memory import run_peak
from gradtui.run.state.run_state import RunState
from gradtui.run.text import fullest_words, growth_text, oom_headline
from gradtui.run.text.memory import graph_lines, most_saved_text, place_of, spikes_text


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
        fullest=fullest_words(state, memory.devices),
        before_training=state.held_since_load,
        notes=tuple(_notes(state)),
    )


def _notes(state: RunState) -> list[str]:
    saved = most_saved_text(state.tree)
    growth = state.growth.current
    return [
        *([saved] if saved is not None else []),
        *graph_lines(state),
        *([growth_text(growth)] if growth is not None else []),
        *filter(None, [spikes_text(state)]),
    ]


def step_peak(state: RunState) -> StepPeak | None:
    """Return the peak of the last profiled step, with its holders."""
    step = state.step_profile
    if step is None:
        return None
    holdings = (
        PeakHolding(
            each.kind,
            _module_path(state, each.module),
            each.bytes,
            each.tensors,
            _place(state, each.module),
        )
        for each in step.holdings
    )
    where, place = _module_path(state, step.peak_module), place_of(state, step.peak_module).removeprefix(" at ")
    return StepPeak(step.step, step.peak, step.peak_phase.value, where, tuple(holdings), place, step.whole)


def living_graphs(state: RunState) -> LivingGraphs | None:
    """Return the graphs that no backward has reached."""
    graphs = state.graphs
    if graphs is None or not graphs.forwards:
        return None
    return taken(LivingGraphs, graphs)


def checkpointed(state: RunState) -> tuple[Checkpointed, ...]:
    """Return the modules with operations in checkpointed regions."""
    saved = state.tree.saved
    if saved is None:
        return ()
    rows = zip(state.tree.modules, saved.recomputed, saved.region_inputs)
    return tuple(Checkpointed(module.path, again, inputs) for module, again, inputs in rows if again != 0 or inputs)


def _module_path(state: RunState, index: int) -> str | None:
    return state.tree.modules[index].path if 0 <= index < len(state.tree.modules) else None


def _place(state: RunState, index: int) -> str:
    return _module_path(state, index) or (
        state.tree.modules[index].name if 0 <= index < len(state.tree.modules) else ""
    )


def failed_allocation(event: OutOfMemory) -> FailedAllocation:
    """Return an allocation that failed."""
    return taken(
        FailedAllocation,
        event,
        phase=event.phase.value,
        seconds=event.at,
        requested_bytes=event.requested,
        bytes={**dict(event.categories), "total": event.total} if event.categories else None,
        in_words=oom_headline(event),
    )
