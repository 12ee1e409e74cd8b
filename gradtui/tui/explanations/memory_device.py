"""The driver's figure of the device's memory as a bar, and its parts with their sizes. UI thread; pure."""

from __future__ import annotations

from gradtui.state.reconciliation import PartName, Reconciliation, reconcile
from gradtui.state.run_state import RunState
from gradtui.text import BYTES_WIDTH, bytes_text
from gradtui.tui.rendering import Line, in_columns, pad
from gradtui.tui.widgets import FULL, stacked_bar

ROLES: dict[PartName, str] = {
    "requested": "device-requested",
    "rounding": "device-rounding",
    "allocated": "device-requested",
    "cached": "device-cached",
    "context": "device-context",
    "outside": "device-outside",
}
"""The colour role of each part."""

_PATTERNS: dict[PartName, str] = dict(zip(ROLES, "█▒█░▓·"))
_NAMES: dict[PartName, str] = {"context": "context, libraries", "outside": "all outside torch"}
_NAME_WIDTH, _SHORT_NAME_WIDTH = 19, 9
_TOTAL_WIDTH = BYTES_WIDTH + 1
_GAP = 2
_MIN_BAR = 4


def device_lines(state: RunState, width: int, *, colour: bool) -> list[Line]:
    """Return a heading, the bar with the driver's figure, and the parts in as many columns as fit; empty without a device."""
    found = reconcile(state.device)
    if found is None:
        return []
    return [
        ((heading(found, width), "faint"),),
        _bar(found, width, colour=colour),
        *_legend(found, width, colour=colour),
    ]


def heading(found: Reconciliation, width: int) -> str:
    """Say whose memory the bar shows, in as many words as fit."""
    if found.scope == "process":
        texts = (
            "this process on the device, as the driver (nvidia-smi) sees it",
            "this process, as nvidia-smi sees it",
        )
    elif found.scope == "device":
        texts = (
            "the device with all processes on it: the driver does not report the share of this one",
            "the device, with all processes on it",
        )
    else:
        texts = ("torch's allocator on the device: the driver reports nothing", "torch's allocator; no driver's figure")
    return next((text for text in texts if len(text) <= width), texts[-1])


def sample(name: PartName, *, colour: bool) -> str:
    """Return the character that a part's bar is made of."""
    return FULL if colour else _PATTERNS[name]


def _bar(found: Reconciliation, width: int, *, colour: bool) -> Line:
    sizes = [(ROLES[part.name], float(part.size or 0)) for part in found.parts]
    patterns = "".join(sample(part.name, colour=colour) for part in found.parts)
    # Without the driver's figure the bar ends where the allocator's parts end.
    full = found.total or sum(size for _, size in sizes)
    bar = stacked_bar(sizes, full, max(_MIN_BAR, width - _TOTAL_WIDTH), patterns=patterns)
    return (*bar, (" " + bytes_text(found.total), "text" if found.total is not None else "faint"))


def _legend(found: Reconciliation, width: int, *, colour: bool) -> list[Line]:
    name_width = _NAME_WIDTH if width >= 2 * _entry_width(_NAME_WIDTH) + _GAP else _SHORT_NAME_WIDTH
    columns = max(1, min(len(found.parts), (width + _GAP) // (_entry_width(name_width) + _GAP)))
    entries: list[Line] = [
        (
            (sample(part.name, colour=colour) + " ", ROLES[part.name]),
            (pad(_NAMES.get(part.name, part.name) if name_width == _NAME_WIDTH else part.name, name_width), "muted"),
            (bytes_text(part.size), "text" if part.size else "faint"),
        )
        for part in found.parts
    ]
    return in_columns(entries, columns, _GAP)


def _entry_width(name_width: int) -> int:
    return 2 + name_width + BYTES_WIDTH
