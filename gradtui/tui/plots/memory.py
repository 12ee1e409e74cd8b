"""Memory over steps: the peak and the total of each step, or by phase, with its spikes and the limit of the device. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.devices import models_capacity
from gradtui.run.state.memory.memory_over_steps import PEAK, memory_over_steps
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP
from gradtui.run.state.optimizers.optimizer_turns import iteration_stride
from gradtui.run.state.over_steps.markers import Marker, MarkerKind
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_host
from gradtui.run.text import short_bytes, spike_count_text, spike_words
from gradtui.tui.plots.curves import curves_request, in_sight, legend_of, lines_below, run_range, table_of, visible_part
from gradtui.tui.plots.options import REFERENCE_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.plot_state import MemoryPhases
from gradtui.tui.plots.run_events import marks_over
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import PHASE_ROLES, wrap

_MAX = "highest at phase ends"
"""What the peak curve is called where no allocator keeps a peak: the peak of a step is higher than its totals."""
_SUM = "sum of peaks"
PEAK_ROLE, TOTAL_ROLE = "curve-1", "curve-4"
_LIMIT_FITS = 1.5
"""The limit of the device is drawn beside curves near whose highest visible value it is: at most this many times as high."""


def memory_curves(state: RunState, phases: MemoryPhases = "step") -> list[Curve]:
    """Return the curves in bytes, the peak last, without the bytes from before the first forward."""
    stride = iteration_stride(state)
    return [
        Curve(
            _peak_name(state) if curve.phase is None else curve.name,
            PEAK_ROLE if curve.phase is None else TOTAL_ROLE if phases == "step" else PHASE_ROLES[curve.phase],
            curve.steps,
            curve.values,
            can_be_smooth=False,
            stride=stride,
        )
        for curve in memory_over_steps(state, _chosen(phases))
    ]


def _peak_name(state: RunState) -> str:
    memory = state.step_memory
    return _MAX if not memory.peaks_exact else _SUM if memory.devices else PEAK


def _chosen(phases: MemoryPhases) -> tuple[Phase, ...]:
    if phases == "step":
        return ()
    return PHASES_OF_STEP if phases == "all" else (Phase(phases),)


def memory_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the memory of each step."""
    curves = memory_curves(state, options.phases)
    whole = run_range(curves, float(state.step))
    if whole is None:
        return Plot(tuple(wrap(((_awaited(state), "muted"),), width)), None)
    ends = options.window.ends(*whole)
    limit = _limit(state, ends)
    is_drawn = limit is not None and (options.other_scale or _is_near(limit, curves, ends))
    listed = [curves[-1], *curves[:-1], *([] if limit is None else [limit])]
    above = legend_of(listed, ends, _size, width, options)
    below = lines_below(_words(state), "faint", width, height)
    drawn = [limit, *curves] if limit is not None and is_drawn else curves
    marks = marks_over(state, whole[0], _spikes(state))
    rows = height - len(above) - len(below)
    request = curves_request(drawn, options, ends, "linear", width, rows, y_label="memory", state=state, marks=marks)
    request = replace(request, unit="bytes", from_zero=options.other_scale)
    note = _note(curves, ends, whole, options, is_limit_beyond=limit is not None and not is_drawn)
    return Plot(above, request, below, whole, note, tuple(curves), marks)


def memory_plot_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible totals by step in bytes, as the allocator counts them."""
    totals = [(phase.value, state.phases[phase].totals) for phase in PHASES_OF_STEP]
    curves = [
        Curve(f"{name}_bytes", "", series.steps, series.values)
        for name, series in ((PEAK, state.step_memory.peak), *totals)
        if len(series)
    ]
    return table_of(curves, options)


def _spikes(state: RunState) -> list[Marker]:
    return [
        Marker(spike.step, MarkerKind.SPIKE, f"+{_brief(spike.peak - spike.usual)}", spike)
        for spike in state.step_memory.spikes
    ]


def _brief(size: int) -> str:
    """Return bytes in at most four characters, as the axis does where it is narrow: `64M`, `1.2G`. So it is never cut."""
    number, unit = short_bytes(size).split()
    digits = f"{float(number):.1f}" if float(number) < 9.95 else f"{float(number):.0f}"
    return f"{digits.removesuffix('.0')}{unit[0]}"


def _awaited(state: RunState) -> str:
    if state.ended is not None:
        return "The run ended before the memory of a step was measured."
    return "Waiting for the first step to end: the allocated bytes are read at the end of each of its phases."


def _limit(state: RunState, ends: tuple[float, float]) -> Curve | None:
    """Return the memory of the device as a line; None where the script trains on the host."""
    size = models_capacity(state)
    if size is None or is_on_host(state):
        return None
    return Curve(
        "device limit" if len(state.step_memory.devices) < 2 else "limit of all devices",
        REFERENCE_ROLE,
        ends,
        (size, size),
        can_be_smooth=False,
    )


def _is_near(limit: Curve, curves: Sequence[Curve], ends: tuple[float, float]) -> bool:
    seen = [value or 0 for curve in curves for value in in_sight(curve, *ends).values]
    return bool(seen) and (limit.values[0] or 0) <= _LIMIT_FITS * max(seen)


def _size(value: float | None) -> str:
    return short_bytes(None if value is None else round(value))


def _words(state: RunState) -> str:
    """Return the newest spike, and what the figures leave out."""
    memory, before = state.step_memory, state.held_since_load
    words = []
    if memory.spikes:
        many = spike_count_text(state) + (", the newest" if memory.spike_count > 1 else "")
        words.append(f"{many} {spike_words(state, memory.spikes[-1])[0]}.")
    if before is not None:
        words.append(f"Without {short_bytes(before)} from before training.")
    return " ".join(words)


_PHASE_NOTES: dict[MemoryPhases, str] = {
    "step": "total at the end of the step",
    "all": "totals at the ends of the phases",
}


def _note(
    curves: Sequence[Curve],
    ends: tuple[float, float],
    whole: tuple[float, float],
    options: PlotOptions,
    *,
    is_limit_beyond: bool,
) -> str:
    longest = max(curves, key=lambda curve: len(curve.steps))
    phases = _PHASE_NOTES.get(options.phases, f"total at the end of {options.phases}")
    beyond = ["limit beyond the axis"] if is_limit_beyond else []
    scale = "from zero" if options.other_scale else "near its values"
    return " · ".join([phases, *visible_part(longest, ends, whole), *beyond, f"axis {scale}"])
