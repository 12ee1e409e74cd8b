"""The parts into which the bytes of a phase are divided: names, patterns, and the legend with their bytes. UI thread; pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes
from gradtui.state.run_state import RunState
from gradtui.state.selectors import unexplained_parts
from gradtui.text import BYTES_WIDTH, bytes_text, short_bytes
from gradtui.tui.rendering import Line, Span, in_columns, pad
from gradtui.tui.widgets import FULL

BEFORE_TRAINING = "at_load"
"""The role of the bytes that no category explains before the first forward: imports and data, not added by training."""

PARTS = (*MEMORY_CATEGORIES, BEFORE_TRAINING)
"""The parts in the order in which they are drawn. Each is also the role of its colour."""

_WHERE_THERE_ARE_ANY = ("input", "offloaded")
"""Parts that many runs never have. They are shown once one of them is not empty."""

_PATTERNS = dict(zip(PARTS, "█▓▒▪░▚▘·┄"))
_NAMES = {"optimizer_state": "optimizer", BEFORE_TRAINING: "before training"}
_SHORT_NAMES = {
    "parameters": "par", "buffers": "buf", "gradients": "grad", "optimizer_state": "opt", "activations": "act", "input": "inp",
    "offloaded": "off", "other": "oth", BEFORE_TRAINING: "pre",
}  # fmt: skip
_WITH_ACTIVATIONS, _SHORT_WITH_ACTIVATIONS = "other+activ", "+act"

_NAME_WIDTH, _SHORT_NAME_WIDTH = 16, 5
_GAP = 1
_SAMPLE_WIDTH = 2
_MAX_COLUMNS = 4


@dataclass(frozen=True)
class Part:
    """A part of the memory breakdown; `size` in bytes, None if unknown."""

    role: str
    size: int | None
    name: str
    short_name: str
    within_total: bool = True


def parts_of(held: MemoryBytes, state: RunState) -> list[Part]:
    """Divide `held` into parts; those within the total add up to it if it is known.

    The bytes left unexplained at the end of `load` are separated from those added since. Unknown activations are contained in
    the part `other`, and its name then says so.
    """
    measured = [held, *(record.last.held for record in state.phases.values() if record.last is not None)]
    sizes: dict[str, int | None] = {
        role: getattr(held, role)
        for role in MEMORY_CATEGORIES
        if role not in _WHERE_THERE_ARE_ANY or any(getattr(each, role) for each in measured)
    }
    at_load, since = unexplained_parts(state, held)
    sizes["other"] = since
    if at_load is not None:
        sizes[BEFORE_TRAINING] = at_load
    within = held.within_total().keys() | {BEFORE_TRAINING}
    parts = [Part(role, size, part_name(role), _SHORT_NAMES[role], role in within) for role, size in sizes.items()]
    if held.activations is not None:
        return parts
    return [
        Part(part.role, part.size, _WITH_ACTIVATIONS, _SHORT_WITH_ACTIVATIONS) if part.role == "other" else part
        for part in parts
    ]


def part_name(role: str) -> str:
    """Return the name of a part."""
    return _NAMES.get(role, role)


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
    parts = parts_of(breakdown.held, state)
    long = width >= 2 * _entry_width(_NAME_WIDTH) + _GAP
    name_width = _NAME_WIDTH if long else _SHORT_NAME_WIDTH
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
    name = part.name if name_width >= _NAME_WIDTH else part.short_name
    return (
        (sample(part.role, colour=colour) + " ", part.role),
        (pad(name, name_width), "muted"),
        (bytes_text(part.size), "text" if part.size else "faint"),
    )
