"""Memory by phase: what is held at the end of each, what it peaked at, and the totals over steps.

UI thread; all but the widget is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtui.protocol.events import DeviceSampled, LedgerTaken
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes, Phase
from gradtui.state.run_state import PhaseRecord, RunState
from gradtui.state.selectors import highest_peak, newest_ledger
from gradtui.tui.formatting import DASH, bytes_text, share_text
from gradtui.tui.lines import BLANK, Line, Span, fit, line_width, pad, wrap
from gradtui.tui.panels.pictures import HeldRequest, Pictures
from gradtui.tui.plotting.request import PlotRequest, Series
from gradtui.tui.widgets.line_view import LineView
from gradtui.tui.widgets.stacked_bar import FULL, stacked_bar

MAIN_PHASES = (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
"""Phases that have a row from the start; the others get one when they are first seen."""

_NAMES = {"optimizer_state": "optimizer"}
_SHORT_NAMES = {
    "parameters": "params", "buffers": "buf", "gradients": "grads", "optimizer_state": "optim", "activations": "act",
    "other": "other",
}  # fmt: skip
_PATTERNS = {
    "parameters": "█",
    "buffers": "▓",
    "gradients": "▒",
    "optimizer_state": "▪",
    "activations": "░",
    "other": "·",
}
"""What the bars are made of where there is no colour."""

_PHASE_WIDTH = max(len(phase) for phase in Phase) + 1
_TOTAL_WIDTH, _PEAK_WIDTH = 9, 11
_LEAST_BAR, _GOOD_BAR = 6, 10
_NAME_WIDTH, _SHORT_NAME_WIDTH = 12, 8
_LEGEND_GAP = 2
LEAST_CURVE_ROWS = 6


@dataclass(frozen=True)
class MemoryView:
    """The text of the panel, and how many rows below it are left for the curve (0: none)."""

    lines: tuple[Line, ...]
    curve_rows: int


def memory_view(state: RunState, width: int, height: int, *, colour: bool = True) -> MemoryView:
    """Lay the panel out: bars first, then as much of legend, peak and device as there is room for, then the curve."""
    ledger = newest_ledger(state)
    if ledger is None:
        return MemoryView(tuple(_waiting(state, width)), 0)
    bars = _bars(state, width, height, colour)
    legend = _legend(_fullest(state) or ledger, width, colour)
    notes = [*_peak_line(state), *_device_line(state.device)]
    room = height - len(bars) - len(notes)
    if room > len(legend):
        legend = [BLANK, *legend]
    elif room < len(legend):
        legend = _short_legend(width, colour)
        notes = notes[: max(0, height - len(bars) - len(legend))]
    lines = [*bars, *legend, *notes]
    rest = height - len(lines) - 1
    if rest >= LEAST_CURVE_ROWS:
        return MemoryView(tuple(fit(line, width) for line in (*lines, BLANK)), rest)
    return MemoryView(tuple(fit(line, width) for line in lines[:height]), 0)


def memory_title(state: RunState) -> str:
    """Where the numbers come from, and whether all of them were measured."""
    ledger = newest_ledger(state)
    source = state.started.ledger if state.started else ""
    if ledger is None:
        return source
    return f"{source}, {'exact' if ledger.exact else 'partly estimated'}"


def phases_shown(state: RunState) -> list[Phase]:
    """The phases that have a row: the four of every training first, then whatever else was seen."""
    others = [p for p in Phase if p not in MAIN_PHASES and state.phases[p].last is not None]
    return [*MAIN_PHASES, *others]


def _waiting(state: RunState, width: int) -> list[Line]:
    if state.ended is not None:
        text = "The script ended before a phase of a step could be measured."
    else:
        text = "Waiting for the first phase to end: what the tensors of the run hold is measured at the end of each."
    return wrap(((text, "muted"),), width)


def _fullest(state: RunState) -> LedgerTaken | None:
    """The ledger of the main phase that ends with the most bytes: the one whose parts a person wants to know."""
    ledgers = [state.phases[phase].last for phase in MAIN_PHASES]
    return max(
        (ledger for ledger in ledgers if ledger is not None), key=lambda ledger: ledger.held.total or 0, default=None
    )


def _bars(state: RunState, width: int, height: int, colour: bool) -> list[Line]:
    phases = phases_shown(state)
    beside = width - _PHASE_WIDTH - _TOTAL_WIDTH - _PEAK_WIDTH
    tall = beside < _GOOD_BAR and height >= 2 * len(phases) + 8
    bar_width = width if tall else max(4, beside if beside >= _LEAST_BAR else width - _PHASE_WIDTH - _TOTAL_WIDTH)
    full = max((_extent(state.phases[phase].last) for phase in phases), default=0) or 1
    lines: list[Line] = []
    for phase in phases:
        last = state.phases[phase].last
        name: Span = (pad(phase.value, _PHASE_WIDTH), "text" if last else "faint")
        numbers = _numbers(last, with_peak=tall or beside >= _LEAST_BAR)
        bar = _bar(last, full, bar_width, colour)
        if tall:
            gap = width - _PHASE_WIDTH - line_width(numbers)
            lines += [(name, (" " * gap, ""), *numbers), bar]
        else:
            lines.append((name, *bar, *numbers))
    return lines


def _extent(ledger: LedgerTaken | None) -> int:
    if ledger is None:
        return 0
    known = sum(max(0, size or 0) for size in _sizes(ledger.held))
    return max(known, ledger.held.total or 0, ledger.peak or 0)


def _sizes(held: MemoryBytes) -> list[int | None]:
    return [getattr(held, category) for category in MEMORY_CATEGORIES]


def _bar(ledger: LedgerTaken | None, full: int, width: int, colour: bool) -> Line:
    if ledger is None:
        return ((" " * width, ""),)
    parts = [(role, float(size or 0)) for role, size in zip(MEMORY_CATEGORIES, _sizes(ledger.held))]
    patterns = "" if colour else "".join(_PATTERNS[category] for category in MEMORY_CATEGORIES)
    return stacked_bar(parts, full, width, ledger.peak, patterns)


def _numbers(ledger: LedgerTaken | None, *, with_peak: bool) -> Line:
    total = bytes_text(ledger.held.total if ledger else None)
    spans: list[Span] = [(" " + total, "text" if ledger and ledger.held.total is not None else "faint")]
    if with_peak:
        peak = ledger.peak if ledger else None
        if ledger is None or peak is None:
            spans.append((" " * _PEAK_WIDTH, ""))
        else:
            spans += [(" ▲", "warning"), (" " if ledger.peak_exact else "≥", "muted"), (bytes_text(peak), "muted")]
    return tuple(spans)


def _legend(ledger: LedgerTaken, width: int, colour: bool) -> list[Line]:
    heading: Line = ((f"at the end of {ledger.phase}, step {ledger.step:,}", "faint"),)
    sizes = list(zip(MEMORY_CATEGORIES, _sizes(ledger.held)))
    name_width = _NAME_WIDTH if width >= 2 * (_NAME_WIDTH + 10) + _LEGEND_GAP else _SHORT_NAME_WIDTH
    entries = [_legend_entry(category, size, name_width, colour) for category, size in sizes]
    columns = max(1, min(3, (width + _LEGEND_GAP) // (name_width + 10 + _LEGEND_GAP)))
    rows = -(-len(entries) // columns)
    lines: list[Line] = [heading]
    for row in range(rows):
        spans: list[Span] = []
        for column, entry in enumerate(entries[row::rows]):
            spans += ((" " * _LEGEND_GAP, ""), *entry) if column else entry
        lines.append(tuple(spans))
    return lines


def _legend_entry(category: str, size: int | None, name_width: int, colour: bool) -> Line:
    sample = FULL if colour else _PATTERNS[category]
    name = _NAMES.get(category, category) if name_width >= _NAME_WIDTH else _SHORT_NAMES[category]
    return ((sample + " ", category), (pad(name, name_width), "muted"), (bytes_text(size), "text" if size else "faint"))


def _short_legend(width: int, colour: bool) -> list[Line]:
    spans: list[Span] = []
    for category in MEMORY_CATEGORIES:
        sample = FULL if colour else _PATTERNS[category]
        spans += [(sample, category), (f"{_SHORT_NAMES[category]} ", "muted")]
    return [fit(spans, width)]


def _peak_line(state: RunState) -> list[Line]:
    found = highest_peak(state)
    if found is None:
        return []
    phase, record = found
    return [(("▲ ", "warning"), (_peak_words(phase, record), "muted"))]


def _peak_words(phase: Phase, record: PhaseRecord) -> str:
    return f"peak so far {'' if record.peak_exact else '≥'}{bytes_text(record.peak).strip()} in {phase}"


def _device_line(device: DeviceSampled | None) -> list[Line]:
    if device is None:
        return []
    parts: list[str] = []
    if device.host_rss is not None:
        parts.append(f"host {bytes_text(device.host_rss).strip()}{_of(device.host_total)}")
    if device.device_used is not None:
        own = f", this process {bytes_text(device.device_process).strip()}" if device.device_process is not None else ""
        parts.append(f"device {bytes_text(device.device_used).strip()}{_of(device.device_total)}{own}")
    if device.reserved is not None:
        parts.append(f"reserved {bytes_text(device.reserved).strip()}")
    if device.utilisation is not None:
        parts.append(f"busy {share_text(device.utilisation).strip()}")
    return [(("  " + " · ".join(parts or [f"host {DASH}"]), "muted"),)]


def _of(total: int | None) -> str:
    return "" if total is None else f" of {bytes_text(total).strip()}"


def memory_request(state: RunState, width: int, height: int) -> PlotRequest | None:
    """Totals at the end of the fullest and of the emptiest phase of a step; None before there are two points."""
    records = {phase: state.phases[phase].totals for phase in (Phase.FORWARD, Phase.OPTIMIZER, Phase.BACKWARD)}
    known = [(phase, totals) for phase, totals in records.items() if len(totals) > 1][:2]
    if not known:
        return None
    series = tuple(
        Series(f"end of {phase}", role, tuple(map(float, totals.steps)), tuple(totals.values))
        for (phase, totals), role in zip(known, ("activations", "optimizer_state"))
    )
    return PlotRequest(width, height, series, unit="bytes")


class MemoryPanel(LineView):
    """The bars, and the curve of totals where there is room for it."""

    def __init__(self, state: RunState, pictures: Pictures, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._pictures = pictures
        self._curve = HeldRequest()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        view = memory_view(self._state, width, height, colour=not self.app.no_color)
        if not view.curve_rows:
            return view.lines
        request = self._curve.request(width, view.curve_rows, lambda w, h: memory_request(self._state, w, h))
        return view.lines if request is None else [*view.lines, *self._pictures.picture("memory", request).lines]

    def redraw_curve(self) -> None:
        """Repaint with a new curve. It moves slowly and costs more than the bars, so it is not drawn as often."""
        self._curve.renew()
        self.redraw()
