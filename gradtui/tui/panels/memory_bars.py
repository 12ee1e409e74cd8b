"""One row per phase: a bar of the bytes held at its end, the total, and the peak if it differs. UI thread; pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.freshness import is_stale
from gradtui.run.state.memory.run_memory import PhaseTotal, above_load, phase_peak, phase_total
from gradtui.run.state.run_state import RunState
from gradtui.run.text import BEFORE_TRAINING, MemoryPart, bounded, bytes_text, parts_of_memory
from gradtui.tui.panels.memory_parts import distinct_peak, sample
from gradtui.tui.rendering import STALE, Line, Span, elide_start, pad
from gradtui.tui.widgets import stacked_bar

CHOSEN_MARK = "▸"
_NAME_WIDTH = max(len(phase) for phase in Phase) + 2
_TOTAL_WIDTH, _PEAK_WIDTH, _STEP_WIDTH = 9, 11, 9
_MIN_BAR, _GOOD_BAR = 4, 14


@dataclass(frozen=True)
class MemoryOptions:
    """How to draw the panel."""

    chosen: Phase | None = None
    """The phase whose parts are shown, None for the fullest one."""
    focused: bool = False
    colour: bool = True


def phase_rows(state: RunState, phases: list[Phase], chosen: Phase, options: MemoryOptions, width: int) -> list[Line]:
    """Return a row for each of `phases`, all to the scale of every measured phase, so that bars keep their length.

    A row has the bar of the newest breakdown, the newest total, and the highest total of the phase so far. Totals that are old
    or of another step than that of `chosen` have their step, in a narrow panel in place of the bar. Old ones are dim.
    """
    full = max((_extent(state, record.last) for record in state.phases.values()), default=0) or 1
    beside = width - _NAME_WIDTH - _TOTAL_WIDTH
    with_peak = beside - _PEAK_WIDTH >= _GOOD_BAR
    beside -= _PEAK_WIDTH if with_peak else 0
    # The place depends on the width alone, so that a number that becomes old moves nothing.
    with_step = beside - _STEP_WIDTH >= _GOOD_BAR
    beside -= _STEP_WIDTH if with_step else 0
    room = max(_MIN_BAR, beside)
    of_chosen = phase_total(state, chosen)
    lines: list[Line] = []
    for phase in phases:
        breakdown = state.phases[phase].last
        total = phase_total(state, phase)
        is_old = phase is not Phase.LOAD and is_stale(state, total.step if total is not None else None)
        is_other = total is not None and (of_chosen is None or total.step != of_chosen.step)
        step = f" @{total.step:,}" if total is not None and phase is not Phase.LOAD and (is_old or is_other) else ""
        bar = _bar(state, breakdown, full, room, options)
        if step and not with_step:
            bar = ((elide_start(step.strip(), room).rjust(room), "muted"),)
        name = _name(phase, breakdown, options, is_chosen=phase is chosen)
        ending: Line = ((pad(step, _STEP_WIDTH), "muted"),) if with_step else ()
        lines.append((name, *bar, *_numbers(state, phase, total, with_peak=with_peak, is_old=is_old), *ending))
    return lines


def _name(phase: Phase, breakdown: MemoryMeasured | None, options: MemoryOptions, *, is_chosen: bool) -> Span:
    if not is_chosen:
        return " " + pad(phase.value, _NAME_WIDTH - 1), "text" if breakdown else "faint"
    role = "strong@cursor" if options.focused else "strong"
    return CHOSEN_MARK + pad(phase.value, _NAME_WIDTH - 1), role


def _extent(state: RunState, breakdown: MemoryMeasured | None) -> int:
    if breakdown is None:
        return 0
    sizes = [part.size or 0 for part in _own_parts(state, breakdown)]
    return max(
        sum(max(0, size) for size in sizes), above_load(state, max(breakdown.held.total or 0, breakdown.peak or 0))
    )


def _own_parts(state: RunState, breakdown: MemoryMeasured) -> list[MemoryPart]:
    parts = parts_of_memory(breakdown.held, state)
    return [part for part in parts if part.within_total and part.role != BEFORE_TRAINING]


def _bar(state: RunState, breakdown: MemoryMeasured | None, full: int, width: int, options: MemoryOptions) -> Line:
    if breakdown is None:
        return ((" " * width, ""),)
    parts = _own_parts(state, breakdown)
    peak = distinct_peak(breakdown)
    patterns = "".join(sample(part.role, colour=options.colour) for part in parts)
    sizes = [(part.role, float(part.size or 0)) for part in parts]
    return stacked_bar(sizes, full, width, None if peak is None else above_load(state, peak), patterns)


def _numbers(state: RunState, phase: Phase, total: PhaseTotal | None, *, with_peak: bool, is_old: bool) -> Line:
    words = bytes_text(total.bytes if total is not None else None)
    spans: list[Span] = [(" " + words, "text" if total is not None and not is_old else STALE)]
    if not with_peak:
        return tuple(spans)
    peak, bound = phase_peak(state, phase) or (None, "exact")
    if peak is None or bytes_text(peak) == words:
        return (*spans, (" " * _PEAK_WIDTH, ""))
    return (*spans, (" ▲", "warning"), (bounded(bound, "") or " ", "muted"), (bytes_text(peak), "muted"))
