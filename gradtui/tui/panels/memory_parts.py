"""The legend of the parts into which the bytes of a phase are divided: patterns, and their bytes. UI thread; pure."""

from __future__ import annotations

from gradtui.protocol.events import MemoryMeasured
from gradtui.run.state.freshness import is_memory_stale
from gradtui.run.state.memory.run_memory import above_load
from gradtui.run.state.parts.bounds import bound_of_peak
from gradtui.run.state.run_state import RunState
from gradtui.run.text import (
    BYTES_WIDTH,
    MEMORY_PARTS,
    TEMPORARIES,
    MemoryPart,
    bounded,
    bytes_text,
    fullest_words,
    parts_of_memory,
    short_bytes,
)
from gradtui.tui.rendering import STALE, Line, Span, in_columns, pad
from gradtui.tui.widgets import FULL

_PATTERNS = dict(zip((*MEMORY_PARTS, TEMPORARIES), "█▓▒▞▪░▚▘·┄▏"))

_NAME_WIDTH, _SHORT_NAME_WIDTH = 16, 6
_GAP = 1
_SAMPLE_WIDTH = 2
_MAX_COLUMNS = 4


def sample(role: str, *, colour: bool) -> str:
    """Return the character that a part's bar is made of."""
    return FULL if colour else _PATTERNS[role]


def distinct_peak(breakdown: MemoryMeasured) -> int | None:
    """Return the peak within the phase, None if it is unknown or reads the same as the total at the phase's end."""
    if breakdown.peak is None or bytes_text(breakdown.peak) == bytes_text(breakdown.held.total):
        return None
    return breakdown.peak


def legend(breakdown: MemoryMeasured, state: RunState, width: int, *, colour: bool) -> list[Line]:
    """Return a heading with the phase, and the bytes of every part in as many columns as fit."""
    parts = parts_of_memory(breakdown.held, state)
    long = width >= 2 * _entry_width(_NAME_WIDTH) + _GAP
    name_width = _NAME_WIDTH if long else _SHORT_NAME_WIDTH
    is_old = is_memory_stale(state, breakdown)
    entries = [_entry(part, name_width, colour, is_old=is_old) for part in parts]
    columns = max(1, min(_MAX_COLUMNS, (width + _GAP) // (_entry_width(name_width) + _GAP)))
    heading = _heading(state, breakdown, width)
    # Above faint numbers the step must be found at a glance.
    return [((heading, "muted" if is_old else "faint"),), *in_columns(entries, columns, _GAP)]


def names_only(breakdown: MemoryMeasured, state: RunState, *, colour: bool) -> Line:
    """Return the legend in one row, without numbers."""
    spans: list[Span] = []
    for part in parts_of_memory(breakdown.held, state):
        spans += [(sample(part.role, colour=colour), part.role), (f"{part.short_name} ", "muted")]
    return tuple(spans)


def _heading(state: RunState, breakdown: MemoryMeasured, width: int) -> str:
    peak = distinct_peak(breakdown)
    bound = bound_of_peak(is_exact=breakdown.peak_exact, devices=breakdown.devices)
    ending = "" if peak is None else f", peak {bounded(bound, short_bytes(above_load(state, peak)))}"
    where = f"{breakdown.phase}, step {breakdown.step:,}"
    fullest = fullest_words(state, breakdown.devices)
    forms = (f"at the end of {where}{ending}", f"end of {where}{ending}", f"{where}{ending}")
    longer = tuple(f"{form}, {fullest}" for form in forms) if fullest else ()
    return next((text for text in (*longer, *forms) if len(text) <= width), forms[-1])


def _entry_width(name_width: int) -> int:
    return _SAMPLE_WIDTH + name_width + BYTES_WIDTH


def _entry(part: MemoryPart, name_width: int, colour: bool, *, is_old: bool) -> Line:
    name = part.name if name_width >= _NAME_WIDTH else part.short_name
    return (
        (sample(part.role, colour=colour) + " ", part.role),
        (pad(name, name_width), "muted"),
        (bytes_text(part.size), "text" if part.size and not is_old else STALE),
    )
