"""The memory panel by phase: the bytes held at the end of each, and the numbers of the chosen one. UI thread; pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.run_memory import includes, memory_peak
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import fullest_phase
from gradtui.tui.explanations.memory_device import device_lines
from gradtui.tui.panels.memory_bars import MemoryOptions, phase_rows
from gradtui.tui.panels.memory_devices import device_rows, host_line, nvml_lines
from gradtui.tui.panels.memory_notes import fullest_line, graphs_line, growth_line, peak_line, spike_line, waiting_lines
from gradtui.tui.panels.memory_parts import legend, names_only
from gradtui.tui.rendering import BLANK, Line, Span, fit, line_width

MAIN_PHASES = (Phase.LOAD, *PHASES_OF_STEP)
"""Phases that have a row from the start. Other phases get a row when they are first measured."""

_BY_VALUE = (*PHASES_OF_STEP, Phase.ZERO_GRAD, Phase.LOAD, Phase.EVAL, Phase.DATA, Phase.OTHER)
"""Phases in the order in which they keep their row if not all fit."""

_MIN_PHASES = 3
"""If fewer rows than this would remain for the phases, the parts are shown without their numbers."""

_MAX_DEVICES = 4
"""Rows for CUDA devices."""

_BETWEEN: Span = (" · ", "muted")


@dataclass(frozen=True)
class MemoryTable:
    """The lines of the view, and the phase of each line."""

    lines: tuple[Line, ...]
    phases: tuple[Phase | None, ...]


def phase_table(state: RunState, width: int, height: int, options: MemoryOptions = MemoryOptions()) -> MemoryTable:  # noqa: B008 - frozen
    """Lay out the phases, the numbers of the chosen phase's parts, and the notes as far as they fit."""
    chosen = chosen_phase(state, options.chosen)
    breakdown = state.phases[chosen].last if chosen is not None else None
    if chosen is None or breakdown is None:
        lines = waiting_lines(state, width)
        return MemoryTable(tuple(lines), (None,) * len(lines))
    numbers = legend(breakdown, state, width, colour=options.colour)
    if height - len(numbers) < _MIN_PHASES:
        # What a device holds has no other place; the names are in the view within a step, too.
        device = nvml_lines(state, width, 1) or device_rows(state, width)
        has_room = not device or height > _MIN_PHASES + len(device)
        numbers = [names_only(breakdown, state, colour=options.colour)] if has_room else []
    phases, notes = _what_fits(state, chosen, width, height - len(numbers))
    if len(phases) + len(numbers) + len(notes) < height:
        numbers = [BLANK, *numbers]
    lines = [*phase_rows(state, phases, chosen, options, width), *numbers, *notes]
    lines += _device_block(state, width, height - len(lines), options)
    owners = (*phases, *(None,) * (len(lines) - len(phases)))
    return MemoryTable(tuple(fit(line, width) for line in lines[:height]), owners[:height])


def _device_block(state: RunState, width: int, room: int, options: MemoryOptions) -> list[Line]:
    """Return the parts of the driver's figure after a blank line, if they fit."""
    block = device_lines(state, width, colour=options.colour)
    return [BLANK, *block] if block and len(block) + 1 <= room else []


def phases_shown(state: RunState) -> list[Phase]:
    """Return the phases that have a row if all fit: `MAIN_PHASES` first, then every other measured phase."""
    others = [p for p in Phase if p not in MAIN_PHASES and state.phases[p].last is not None]
    return [*MAIN_PHASES, *others]


def chosen_phase(state: RunState, wanted: Phase | None) -> Phase | None:
    """Return the phase whose parts are shown: `wanted` if it was measured, else the fullest phase of a step at its end."""
    if wanted is not None and state.phases[wanted].last is not None:
        return wanted
    return fullest_phase(state, PHASES_OF_STEP) or fullest_phase(state, _BY_VALUE)


def next_phase(state: RunState, wanted: Phase | None, rows: int) -> Phase | None:
    """Return the phase `rows` rows below the chosen one, among the measured phases."""
    measured = [phase for phase in phases_shown(state) if state.phases[phase].last is not None]
    chosen = chosen_phase(state, wanted)
    if chosen is None:
        return None
    return measured[min(max(0, measured.index(chosen) + rows), len(measured) - 1)]


def _what_fits(state: RunState, chosen: Phase, width: int, room: int) -> tuple[list[Phase], list[Line]]:
    """Select the phases and notes to show in `room` rows by importance, and return them in the order of the screen."""
    shown = phases_shown(state)
    seen = [chosen, *(p for p in _BY_VALUE if p in shown and p is not chosen and state.phases[p].last is not None)]
    unseen = [phase for phase in shown if state.phases[phase].last is None]
    peak, host = peak_line(state), host_line(state.device)
    if len(peak) == 1 and host and line_width((*peak[0], _BETWEEN, *host[0])) <= width:
        peak, host = [(*peak[0], _BETWEEN, *host[0])], []
    found, fullest = memory_peak(state), fullest_line(state)
    peak += fullest
    # Which of several devices is the fullest takes the row of one phase more, which is the smallest.
    few = len(MAIN_PHASES) + (0 if fullest else 1)
    warnings = [*graphs_line(state), *growth_line(state)]
    # The line of the peak has the newest spike, if that is the peak.
    if found is None or not any(includes(spike, found.step) for spike in state.step_memory.spikes[-1:]):
        warnings += spike_line(state, width)
    nvml = nvml_lines(state, width, 1 if room < few + 2 else 2)
    # If only some rows are free for it, the sentence on what NVML does not report takes the place of the figures.
    devices = device_rows(state, width, min(_MAX_DEVICES, room - _MIN_PHASES - len(nvml)))
    by_value: list[Phase | Line] = [
        *seen[:_MIN_PHASES], *nvml, *devices, *seen[_MIN_PHASES:few], *warnings, *peak, *seen[few:], *unseen, *host
    ]  # fmt: skip
    kept = by_value[: max(0, room)]
    return [phase for phase in shown if phase in kept], [
        line for line in (*warnings, *nvml, *devices, *peak, *host) if line in kept
    ]
