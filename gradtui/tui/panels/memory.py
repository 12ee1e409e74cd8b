"""The memory panel: bytes held at the end of each phase, the parts of one phase as numbers, and the totals over steps.

UI thread; everything except the widget is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events

from gradtui.protocol.events import DeviceSampled
from gradtui.protocol.vocabulary import Phase
from gradtui.state.model_records import peak_owner
from gradtui.state.run_state import RunState
from gradtui.state.selectors import fullest_phase, highest_peak
from gradtui.state.series import Series as Totals
from gradtui.text import DASH, share_text, short_bytes
from gradtui.tui.charts.pictures import HeldRequest, Pictures
from gradtui.tui.charts.request import PlotRequest, Series
from gradtui.tui.explanations.memory_device import device_lines
from gradtui.tui.panels.memory_bars import MemoryOptions, phase_rows
from gradtui.tui.panels.memory_parts import legend, names_only
from gradtui.tui.plots.table import Table, joined
from gradtui.tui.rendering import BLANK, Line, Span, fit, line_width, printable, wrap
from gradtui.tui.widgets import LineView

MAIN_PHASES = (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
"""Phases that have a row from the start. Other phases get a row when they are first measured."""

_BY_VALUE = (
    Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD, Phase.LOAD, Phase.EVAL, Phase.DATA, Phase.OTHER,
)  # fmt: skip
"""Phases in the order in which they keep their row if not all fit. The first three make up a step."""

_MIN_PHASES = 3
"""If fewer rows than this would remain for the phases, the parts are shown without their numbers."""

_BETWEEN: Span = (" · ", "muted")

MIN_CURVE_ROWS = 6

_AS_HIGH = 0.98
"""Fraction of the highest peak. The peaks of steps of one kind differ by less."""

_WIDE = 50
"""From this panel width on, the parts of a CUDA device, which then need few rows, take precedence over the curve."""


@dataclass(frozen=True)
class MemoryView:
    """The lines of the panel, the phase of each line, and the number of rows left below for the curve."""

    lines: tuple[Line, ...]
    phases: tuple[Phase | None, ...]
    curve_rows: int = 0


def memory_view(state: RunState, width: int, height: int, options: MemoryOptions = MemoryOptions()) -> MemoryView:  # noqa: B008 - frozen
    """Lay out the panel: the phases, the numbers of the chosen phase's parts, then notes and curve as far as they fit."""
    chosen = chosen_phase(state, options.chosen)
    breakdown = state.phases[chosen].last if chosen is not None else None
    if chosen is None or breakdown is None:
        lines = _waiting(state, width)
        return MemoryView(tuple(lines), (None,) * len(lines))
    numbers = legend(breakdown, state, width, colour=options.colour)
    if height - len(numbers) < _MIN_PHASES:
        numbers = [names_only(breakdown, state, colour=options.colour)]
    phases, notes = _what_fits(state, chosen, width, height - len(numbers))
    if len(phases) + len(numbers) + len(notes) < height:
        numbers = [BLANK, *numbers]
    lines = [*phase_rows(state, phases, chosen, options, width), *numbers, *notes]
    lines += _device_block(state, width, height - len(lines), options)
    owners = (*phases, *(None,) * (len(lines) - len(phases)))
    rest = height - len(lines) - 1
    if rest >= MIN_CURVE_ROWS:
        return MemoryView(tuple(fit(line, width) for line in (*lines, BLANK)), (*owners, None), rest)
    return MemoryView(tuple(fit(line, width) for line in lines[:height]), owners[:height])


def _device_block(state: RunState, width: int, room: int, options: MemoryOptions) -> list[Line]:
    """Return the parts of the driver's figure after a blank line, if they fit; in a narrow panel only beside the curve."""
    block = device_lines(state, width, colour=options.colour)
    for_curve = MIN_CURVE_ROWS + 1 if room > MIN_CURVE_ROWS and width < _WIDE else 0
    return [BLANK, *block] if block and len(block) + 1 + for_curve <= room else []


def has_breakdown(state: RunState) -> bool:
    """Whether the memory breakdown of any phase has been measured."""
    return any(record.last is not None for record in state.phases.values())


def memory_title(state: RunState) -> str:
    """Describe the source of the numbers, and whether one of them is an estimate."""
    source = state.started.ledger if state.started else ""
    breakdowns = [record.last for record in state.phases.values() if record.last is not None]
    # A breakdown with unknown activations shows a dash for them; that is not an estimate.
    measured = [breakdown for breakdown in breakdowns if breakdown.held.activations is not None]
    if not measured:
        return source
    return f"{source}, {'exact' if all(breakdown.exact for breakdown in measured) else 'partly estimated'}"


def phases_shown(state: RunState) -> list[Phase]:
    """Return the phases that have a row if all fit: `MAIN_PHASES` first, then every other measured phase."""
    others = [p for p in Phase if p not in MAIN_PHASES and state.phases[p].last is not None]
    return [*MAIN_PHASES, *others]


def chosen_phase(state: RunState, wanted: Phase | None) -> Phase | None:
    """Return the phase whose parts are shown: `wanted` if it was measured, else the fullest phase of a step at its end."""
    if wanted is not None and state.phases[wanted].last is not None:
        return wanted
    return fullest_phase(state, _BY_VALUE[:3]) or fullest_phase(state, _BY_VALUE)


def next_phase(state: RunState, wanted: Phase | None, rows: int) -> Phase | None:
    """Return the phase `rows` rows below the chosen one, among the measured phases."""
    measured = [phase for phase in phases_shown(state) if state.phases[phase].last is not None]
    chosen = chosen_phase(state, wanted)
    if chosen is None:
        return None
    return measured[min(max(0, measured.index(chosen) + rows), len(measured) - 1)]


def _waiting(state: RunState, width: int) -> list[Line]:
    if state.ended is not None:
        text = "The script ended before a phase of a step could be measured."
    else:
        text = "Waiting for the first phase to end: the bytes of the tensors are measured at the end of each."
    return wrap(((text, "muted"),), width)


def _what_fits(state: RunState, chosen: Phase, width: int, room: int) -> tuple[list[Phase], list[Line]]:
    """Select the phases and notes to show in `room` rows by importance, and return them in the order of the screen."""
    shown = phases_shown(state)
    seen = [chosen, *(p for p in _BY_VALUE if p in shown and p is not chosen and state.phases[p].last is not None)]
    unseen = [phase for phase in shown if state.phases[phase].last is None]
    peak, device = _peak_line(state), _device_line(state.device)
    if peak and device and line_width((*peak[0], _BETWEEN, *device[0])) <= width:
        peak, device = [(*peak[0], _BETWEEN, *device[0])], []
    few = len(MAIN_PHASES) + 1
    graphs = _graphs_line(state)
    by_value: list[Phase | Line] = [*seen[:few], *peak, *graphs, *seen[few:], *unseen, *device]
    kept = by_value[: max(0, room)]
    return [phase for phase in shown if phase in kept], [line for line in (*peak, *graphs, *device) if line in kept]


def _graphs_line(state: RunState) -> list[Line]:
    graphs = state.graphs
    if graphs is None or not graphs.forwards:
        return []
    forwards = f"{'≥' if graphs.at_least else ''}{graphs.forwards:,} forward{'' if graphs.forwards == 1 else 's'}"
    words = f"graphs of {forwards} alive since step {graphs.since_step:,}: {short_bytes(graphs.bytes)}"
    return [(("▲ ", "warning"), (words, "muted"))]


def _peak_line(state: RunState) -> list[Line]:
    found = highest_peak(state)
    if found is None:
        return []
    phase, record = found
    owner = peak_owner(state, record)
    words = f"peak so far {'' if record.peak_exact else '≥'}{short_bytes(record.peak)} in {phase}"
    words += f" with {printable(owner)}" if owner else ""
    return [(("▲ ", "warning"), (words + _peak_owner(state, phase, record.peak or 0), "muted"))]


def _peak_owner(state: RunState, phase: Phase, peak: int) -> str:
    """Return the module of the peak, if the step profiled last was about as high: the peak may be an earlier model's."""
    step = state.traced
    if step is None or step.peak_phase is not phase or step.peak_module < 0 or step.peak < _AS_HIGH * peak:
        return ""
    module = state.tree.modules[step.peak_module]
    return f" at {printable(module.path or module.name)}"


def _device_line(device: DeviceSampled | None) -> list[Line]:
    if device is None:
        return []
    parts: list[str] = []
    if device.host_rss is not None:
        parts.append(f"host {short_bytes(device.host_rss)}{_of(device.host_total)}")
    if device.device_used is not None:
        own = f", this process {short_bytes(device.device_process)}" if device.device_process is not None else ""
        parts.append(f"device {short_bytes(device.device_used)}{_of(device.device_total)}{own}")
    if device.reserved is not None:
        parts.append(f"reserved {short_bytes(device.reserved)}")
    if device.utilisation is not None:
        parts.append(f"busy {share_text(device.utilisation).strip()}")
    return [((" · ".join(parts or [f"host {DASH}"]), "muted"),)]


def _of(total: int | None) -> str:
    return "" if total is None else f" of {short_bytes(total)}"


def memory_request(state: RunState, width: int, height: int) -> PlotRequest | None:
    """Return the totals at the end of the fullest and the emptiest phase of a step; None with fewer than two points."""
    known = _drawn(state)
    if not known:
        return None
    series = tuple(
        Series(f"end of {phase}", role, *_held(totals.steps, totals.values))
        for (phase, totals), role in zip(known, ("activations", "optimizer_state"))
    )
    return PlotRequest(width, height, series, unit="bytes")


def memory_table(state: RunState) -> Table:
    """Return the totals of `memory_request` by step, in bytes."""
    return joined(
        "optimizer_step", [(f"end_of_{phase}_bytes", totals.steps, totals.values) for phase, totals in _drawn(state)]
    )


def _drawn(state: RunState) -> list[tuple[Phase, Totals]]:
    records = {phase: state.phases[phase].totals for phase in (Phase.FORWARD, Phase.OPTIMIZER, Phase.BACKWARD)}
    return [(phase, totals) for phase, totals in records.items() if len(totals) > 1][:2]


def _held(steps: Sequence[int], values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Make a step function: values in between were not measured, so a slope would be invented."""
    xs = [float(step) for step in steps for _ in (0, 1)][1:]
    ys = [float(value) for value in values for _ in (0, 1)][:-1]
    return tuple(xs), tuple(ys)


class MemoryPanel(LineView, can_focus=True):
    """The bars, the parts of the chosen phase, and the curve of totals if it fits."""

    _MOVES: ClassVar[dict[str, int]] = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -len(Phase), "end": len(Phase)}

    def __init__(self, state: RunState, pictures: Pictures, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._pictures = pictures
        self._curve = HeldRequest()
        self._rows: tuple[Phase | None, ...] = ()
        self._curve_rows = 0
        self._chosen: Phase | None = None

    @property
    def shows_curve(self) -> bool:
        """Whether the curve fits and there is something to draw."""
        return self._curve_rows > 0 and bool(_drawn(self._state))

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        options = MemoryOptions(self._chosen, focused=self.has_focus, colour=not self.app.no_color)
        view = memory_view(self._state, width, height, options)
        self._rows, self._curve_rows = view.phases, view.curve_rows
        if not view.curve_rows:
            return view.lines
        request = self._curve.request(width, view.curve_rows, lambda w, h: memory_request(self._state, w, h))
        return view.lines if request is None else [*view.lines, *self._pictures.picture("memory", request).lines]

    def redraw_curve(self) -> None:
        """Redraw with a new curve. The curve changes slowly and costs more than the bars, so it is drawn less often."""
        self._curve.renew()
        self.redraw()

    def choose(self, phase: Phase | None) -> None:
        """Show the parts of this phase; None for the fullest one."""
        self._chosen = phase
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """Choose a phase by the usual keys. These are not actions, because they have no meaning elsewhere."""
        rows = self._MOVES.get(event.key)
        if rows is not None:
            event.stop()
            event.prevent_default()
            self.move(rows)

    def move(self, rows: int) -> None:
        """Choose the phase `rows` rows below."""
        self.choose(next_phase(self._state, self._chosen, rows))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        phase = self._rows[offset.y] if offset is not None and 0 <= offset.y < len(self._rows) else None
        if phase is not None and self._state.phases[phase].last is not None:
            self.choose(phase)
