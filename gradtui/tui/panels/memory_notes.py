"""Lines of the memory panel: what it waits for, living graphs, growth, the highest peak. UI thread; pure."""

from __future__ import annotations

from gradtui.run.state.freshness import is_stale
from gradtui.run.state.memory.run_memory import RunPeak, is_spike, memory_peak, run_peak
from gradtui.run.state.model_records import peak_owner
from gradtui.run.state.run_state import RunState
from gradtui.run.text import bounded, fullest_words, short_bytes, spike_words, when_words
from gradtui.tui.panels.memory_devices import device_rows, nvml_lines
from gradtui.tui.rendering import Line, fit, printable, wrap


def waiting_lines(state: RunState, width: int) -> list[Line]:
    """Return what the panel waits for before the first measurement, or why there is none."""
    if state.ended is not None:
        text = "The script ended before a phase of a step could be measured."
    else:
        text = "Waiting for the first phase to end: the bytes of the tensors are measured at the end of each."
    return wrap(((text, "muted"),), width)


def warning_lines(state: RunState, width: int, most: int) -> list[Line]:
    """Return so many lines at most about CUDA devices, graphs that stay alive, memory that grows, and spikes."""
    devices = (*nvml_lines(state, width, most), *device_rows(state, width, min(2, most)), *fullest_line(state))
    warnings = (*devices, *graphs_line(state), *growth_line(state), *spike_line(state, width))
    return [fit(line, width) for line in warnings][:most]


def graphs_line(state: RunState) -> list[Line]:
    """Return how many forwards' graphs are alive that no backward has reached; empty if there are none."""
    graphs = state.graphs
    if graphs is None or not graphs.forwards:
        return []
    forwards = f"{'≥' if graphs.at_least else ''}{graphs.forwards:,} forward{'' if graphs.forwards == 1 else 's'}"
    words = f"graphs of {forwards} alive since step {graphs.since_step:,}: {short_bytes(graphs.bytes)}"
    return [(("▲ ", "warning"), (words, "muted"))]


def growth_line(state: RunState) -> list[Line]:
    """Return how much memory has grown over the newest readings at the end of a step; empty unless it grows all the time."""
    growth = state.growth.current
    if growth is None:
        return []
    kind = growth.category.replace("_", " ")
    words = f"grew by {short_bytes(growth.bytes)} from step {growth.since_step:,} to {growth.step:,}: {kind}"
    return [(("▲ ", "warning"), (words, "muted"))]


def spike_line(state: RunState, width: int) -> list[Line]:
    """Return the newest spike in as many words as fit; empty while there was none."""
    if not state.step_memory.spikes:
        return []
    spike = state.step_memory.spikes[-1]
    forms = spike_words(state, spike)
    words = next((text for form in forms if len(text := f"spike {form}") + 2 <= width), forms[-1])
    return [(("▲ ", "muted" if is_stale(state, spike.step) else "warning"), (words, "muted"))]


def fullest_line(state: RunState) -> list[Line]:
    """Return which device is the fullest at its peak; empty for one device."""
    words = fullest_words(state, state.step_memory.devices)
    return [(("▲ ", "muted"), (words, "muted"))] if words else []


def peak_line(state: RunState) -> list[Line]:
    """Return the peak with its phase and module, and the highest of the run if that is another one; empty while unknown."""
    peak, highest = memory_peak(state), run_peak(state)
    if peak is None or highest is None:
        return []
    when = when_words(peak.step, peak.phase, peak.since)
    words = f"peak {bounded(peak.bound, short_bytes(peak.bytes))} {when}"
    words += " (spike)" if is_spike(state, peak.step) else ""
    if peak.curve is not None and peak.curve.peak_module >= 0:
        module = state.tree.modules[peak.curve.peak_module]
        words += f" at {printable(module.path or module.name)}"
    lines: list[Line] = [(("▲ ", "warning"), (words, "muted"))]
    if short_bytes(highest.bytes) != short_bytes(peak.bytes) and highest.bytes > peak.bytes:
        lines.append((("▲ ", "muted"), (_highest_words(state, highest), "muted")))
    return lines


def _highest_words(state: RunState, highest: RunPeak) -> str:
    words = f"highest of the run {bounded(highest.bound, short_bytes(highest.bytes))}"
    words += f" {when_words(highest.step, highest.phase, highest.since)}"
    owner = peak_owner(state, highest.record) if highest.record is not None else ""
    return words + (f" with {printable(owner)}" if owner else "")
