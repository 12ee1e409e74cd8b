"""The legend of the bars, which also shows the bytes of one phase's parts. UI thread; pure."""

from __future__ import annotations

from gradtui.protocol.events import MemoryMeasured
from gradtui.state.run_state import RunState
from gradtui.text import BYTES_WIDTH, bytes_text, short_bytes
from gradtui.tui.panels.memory_bars import distinct_peak
from gradtui.tui.panels.memory_parts import NAME_WIDTH, SHORT_NAME_WIDTH, Part, parts_of, sample
from gradtui.tui.rendering import Line, Span, in_columns, pad

_GAP = 1
_SAMPLE_WIDTH = 2
_MAX_COLUMNS = 4


def legend(breakdown: MemoryMeasured, state: RunState, width: int, *, colour: bool) -> list[Line]:
    """Return a heading with the phase, and the bytes of every part in as many columns as fit."""
    parts = parts_of(breakdown.held, state)
    long = width >= 2 * _entry_width(NAME_WIDTH) + _GAP
    name_width = NAME_WIDTH if long else SHORT_NAME_WIDTH
    entries = [_entry(part, name_width, colour) for part in parts]
    columns = max(1, min(_MAX_COLUMNS, (width + _GAP) // (_entry_width(name_width) + _GAP)))
    return [_heading(breakdown, width), *in_columns(entries, columns, _GAP)]


def names_only(breakdown: MemoryMeasured, state: RunState, *, colour: bool) -> Line:
    """Return the legend in one row, without numbers."""
    spans: list[Span] = []
    for part in parts_of(breakdown.held, state):
        spans += [(sample(part.role, colour=colour), part.role), (f"{part.short_name} ", "muted")]
    return tuple(spans)


def _heading(breakdown: MemoryMeasured, width: int) -> Line:
    peak = distinct_peak(breakdown)
    bound = "" if breakdown.peak_exact else "≥"
    ending = "" if peak is None else f", peak {bound}{short_bytes(peak)}"
    where = f"{breakdown.phase}, step {breakdown.step:,}"
    for text in (f"at the end of {where}{ending}", f"end of {where}{ending}", f"{where}{ending}"):
        if len(text) <= width:
            break
    return ((text, "faint"),)


def _entry_width(name_width: int) -> int:
    return _SAMPLE_WIDTH + name_width + BYTES_WIDTH


def _entry(part: Part, name_width: int, colour: bool) -> Line:
    name = part.name if name_width >= NAME_WIDTH else part.short_name
    return (
        (sample(part.role, colour=colour) + " ", part.role),
        (pad(name, name_width), "muted"),
        (bytes_text(part.size), "text" if part.size else "faint"),
    )
