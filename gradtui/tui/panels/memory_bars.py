"""One row per phase: a bar of the bytes held at its end, the total, and the peak if it differs. UI thread; pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.state.freshness import is_memory_stale
from gradtui.state.run_state import RunState
from gradtui.text import bytes_text, parts_of_memory
from gradtui.tui.panels.memory_parts import distinct_peak, sample
from gradtui.tui.rendering import STALE, Line, Span, pad
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

    Old numbers are dim and have their step, if there is room.
    """
    full = max((_extent(record.last) for record in state.phases.values()), default=0) or 1
    beside = width - _NAME_WIDTH - _TOTAL_WIDTH
    with_peak = beside - _PEAK_WIDTH >= _GOOD_BAR
    beside -= _PEAK_WIDTH if with_peak else 0
    # The place depends on the width alone, so that a number that becomes old moves nothing.
    with_step = beside - _STEP_WIDTH >= _GOOD_BAR
    beside -= _STEP_WIDTH if with_step else 0
    lines: list[Line] = []
    for phase in phases:
        breakdown = state.phases[phase].last
        is_old = is_memory_stale(state, breakdown)
        bar = _bar(state, breakdown, full, max(_MIN_BAR, beside), options)
        name = _name(phase, breakdown, options, is_chosen=phase is chosen)
        step = f" @{breakdown.step:,}" if breakdown is not None and is_old else ""
        ending: Line = ((pad(step, _STEP_WIDTH), "muted"),) if with_step else ()
        lines.append((name, *bar, *_numbers(breakdown, with_peak=with_peak, is_old=is_old), *ending))
    return lines


def _name(phase: Phase, breakdown: MemoryMeasured | None, options: MemoryOptions, *, is_chosen: bool) -> Span:
    if not is_chosen:
        return " " + pad(phase.value, _NAME_WIDTH - 1), "text" if breakdown else "faint"
    role = "strong@cursor" if options.focused else "strong"
    return CHOSEN_MARK + pad(phase.value, _NAME_WIDTH - 1), role


def _extent(breakdown: MemoryMeasured | None) -> int:
    if breakdown is None:
        return 0
    sizes = breakdown.held.within_total().values()
    return max(sum(max(0, size or 0) for size in sizes), breakdown.held.total or 0, breakdown.peak or 0)


def _bar(state: RunState, breakdown: MemoryMeasured | None, full: int, width: int, options: MemoryOptions) -> Line:
    if breakdown is None:
        return ((" " * width, ""),)
    parts = [part for part in parts_of_memory(breakdown.held, state) if part.within_total]
    patterns = "".join(sample(part.role, colour=options.colour) for part in parts)
    sizes = [(part.role, float(part.size or 0)) for part in parts]
    return stacked_bar(sizes, full, width, distinct_peak(breakdown), patterns)


def _numbers(breakdown: MemoryMeasured | None, *, with_peak: bool, is_old: bool) -> Line:
    total = bytes_text(breakdown.held.total if breakdown else None)
    is_current = breakdown is not None and breakdown.held.total is not None and not is_old
    spans: list[Span] = [(" " + total, "text" if is_current else STALE)]
    if with_peak:
        peak = distinct_peak(breakdown) if breakdown else None
        if breakdown is None or peak is None:
            spans.append((" " * _PEAK_WIDTH, ""))
        else:
            mark, role = (STALE, STALE) if is_old else ("warning", "muted")
            spans += [(" ▲", mark), (" " if breakdown.peak_exact else "≥", role), (bytes_text(peak), role)]
    return tuple(spans)
