"""Memory of each step over steps: its peak, the totals at the ends of its phases, and the steps whose peak stands out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradtui.state.markers import Marker, MarkerKind
from gradtui.state.optimizer_turns import iteration_stride
from gradtui.state.run_state import RunState
from gradtui.state.selectors import is_on_host, unexplained_at_load
from gradtui.state.step_curve import PHASES_OF_STEP
from gradtui.text import peak_bound, short_bytes, spike_count_text, spike_words
from gradtui.tui.plots.curves import (
    curves_request,
    in_sight,
    legend,
    newest_steps,
    run_range,
    table_of,
    visible_part,
)
from gradtui.tui.plots.options import REFERENCE_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import PHASE_ROLES, Line, fit, wrap

PEAK_ROLE = "curve-1"
_LIMIT_FITS = 1.5
"""The device's memory is drawn as a line where it is at most this many times the highest visible value."""
_BELOW = 3


def memory_curves(state: RunState) -> list[Curve]:
    """Return the totals of each step in bytes, the peak last, without the bytes from before the first forward."""
    before = unexplained_at_load(state) or 0
    return [
        replace(curve, values=[max(0, round(total or 0) - before) for total in curve.values]) for curve in _raw(state)
    ]


def _raw(state: RunState) -> list[Curve]:
    totals = [(phase.value, PHASE_ROLES[phase], state.phases[phase].totals) for phase in PHASES_OF_STEP]
    named = [*totals, ("peak", PEAK_ROLE, state.step_memory.peak)]
    return [
        Curve(name, role, series.steps, series.values, can_be_smooth=False, stride=iteration_stride(state))
        for name, role, series in named
        if len(series)
    ]


def _peak_first(curves: Sequence[Curve]) -> list[Curve]:
    return sorted(curves, key=lambda curve: curve.role != PEAK_ROLE)


def memory_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the memory of each step."""
    curves = memory_curves(state)
    whole = run_range(state, curves)
    if whole is None:
        return Plot(tuple(wrap(((_awaited(state), "muted"),), width)), None)
    ends = options.window.ends(*whole)
    limit = _limit(state, curves, ends)
    above, has_step = _legend(state, curves, limit, ends, width)
    below = tuple(fit(line, width) for line in wrap(((_words(state), "faint"),), width)[:_BELOW])
    drawn = curves if limit is None else [limit, *curves]
    request = curves_request(
        drawn,
        options,
        ends,
        "linear",
        width,
        height - len(above) - len(below),
        y_label="memory",
        state=state,
        more=_spikes(state),
    )
    request = replace(request, unit="bytes", from_zero=options.other_scale)
    return Plot(above, request, below, whole, _note(curves, ends, whole, options, with_step=not has_step))


def memory_plot_table(state: RunState, options: PlotOptions) -> Table:
    """Return the visible totals by step in bytes, as the allocator counts them."""
    return table_of([replace(curve, name=f"{curve.name}_bytes") for curve in _peak_first(_raw(state))], options)


def _spikes(state: RunState) -> list[Marker]:
    spikes = state.step_memory.spikes
    return [Marker(spike.step, MarkerKind.SPIKE, f"+{_brief(spike.peak - spike.usual)}") for spike in spikes]


def _brief(size: int) -> str:
    """Return bytes in at most four characters, as the axis does where it is narrow: `64M`, `1.2G`. So it is never cut."""
    number, unit = short_bytes(size).split()
    digits = f"{float(number):.1f}" if float(number) < 9.95 else f"{float(number):.0f}"
    return f"{digits.removesuffix('.0')}{unit[0]}"


def _awaited(state: RunState) -> str:
    if state.ended is not None:
        return "The run ended before the memory of a step was measured."
    return "Waiting for the first step to end: the allocated bytes are read at the end of each of its phases."


def _limit(state: RunState, curves: Sequence[Curve], ends: tuple[float, float]) -> Curve | None:
    """Return the memory of the device as a line, if it is near the curves; None otherwise."""
    size = state.device.device_total if state.device is not None else None
    seen = [value or 0 for curve in curves for value in in_sight(curve, *ends).values]
    if size is None or not seen or is_on_host(state) or size > _LIMIT_FITS * max(seen):
        return None
    return Curve("device", REFERENCE_ROLE, ends, (size, size), can_be_smooth=False)


def _legend(
    state: RunState, curves: Sequence[Curve], limit: Curve | None, ends: tuple[float, float], width: int
) -> tuple[tuple[Line, ...], bool]:
    """Return the newest visible values with their step; and whether there was room for that."""
    ordered = _peak_first(curves)
    step, own = newest_steps(ordered, ends)
    sizes = [_size(in_sight(curve, *ends).values) for curve in ordered]
    entries = [
        (curve, f"{peak_bound(state) if curve.role == PEAK_ROLE else ''}{size}{own_step}")
        for curve, size, own_step in zip(ordered, sizes, own)
    ]
    if limit is not None:
        entries.append((limit, _size(limit.values)))
    without, lines = legend(entries, width), legend(entries, width, closing=step)
    return (lines, True) if len(lines) == len(without) else (without, False)


def _size(values: Sequence[float | None]) -> str:
    value = values[-1] if values else None
    return short_bytes(None if value is None else round(value))


def _words(state: RunState) -> str:
    """Return the newest spike, and what the figures leave out."""
    memory, before = state.step_memory, unexplained_at_load(state)
    words = []
    if memory.spikes:
        many = spike_count_text(state) + (", the newest" if memory.spike_count > 1 else "")
        words.append(f"{many} {spike_words(state, memory.spikes[-1])[0]}.")
    if not memory.peaks_exact:
        words.append("Peak ≥: the highest of the totals.")
    if before is not None:
        words.append(f"Without {short_bytes(before)} from before training.")
    return " ".join(words)


def _note(
    curves: Sequence[Curve],
    ends: tuple[float, float],
    whole: tuple[float, float],
    options: PlotOptions,
    *,
    with_step: bool,
) -> str:
    longest = max(curves, key=lambda curve: len(curve.steps))
    scale = "from zero" if options.other_scale else "near its values"
    step = [words] if with_step and (words := newest_steps(curves, ends)[0]) else []
    return " · ".join([*step, *visible_part(longest, ends, whole), f"axis {scale}"])
