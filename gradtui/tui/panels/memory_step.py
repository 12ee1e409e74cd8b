"""The main view of the memory panel: the course of the newest known step, and what holds its peak. UI thread; pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.freshness import is_stale
from gradtui.run.state.memory.run_memory import MemoryPeak, above_load, memory_peak
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP, StepCurve, step_curve
from gradtui.run.state.run_state import RunState
from gradtui.run.text import DASH, bounded, no_profile_text, short_bytes, when_words
from gradtui.system.byte_units import unit_of
from gradtui.tui.panels.memory_curve import (
    SHORT_NAMES,
    Scale,
    columns_of,
    curve_lines,
    in_unit,
    margin_of,
    phase_line,
    says_from,
    scale_for,
)
from gradtui.tui.panels.memory_devices import device_rows, nvml_lines
from gradtui.tui.panels.memory_held import WIDE, before_lines, held_lines, held_shown, newest, owner_line
from gradtui.tui.panels.memory_notes import waiting_lines, warning_lines
from gradtui.tui.rendering import STALE, Line, Span, fit, line_width, phase_role, printable, wrap

_MIN_CURVE_ROWS, _GOOD_CURVE_ROWS = 2, 5
_MARK = "▌"
"""Stands before the total of a phase, in its colour."""
_MAX_GROWTH = 2
"""Of the range of the axis, beyond that of the step shown."""
_ROWS_WITH_TOTALS, _ROWS_WITH_CURVE = 6, 5
"""In a narrow panel, from this height on there are the totals of the newest step, and the curve."""


@dataclass(frozen=True)
class Drawing:
    """What a drawing keeps from the one before, so that nothing moves that did not change."""

    structure: int | None = None
    """The version of the models that `scale` belongs to."""
    scale: Scale | None = None
    shares: Mapping[Phase, float] | None = None


def scale_of(state: RunState, before: Drawing) -> Scale | None:
    """Return the axis for the newest step and for what is held: at least that of `before`, unless the models have changed."""
    step, held = step_curve(state), newest(state)
    baseline = state.held_since_load or 0
    lows = [min(min(part.totals) for part in step.parts)] if step is not None else []
    highs = [step.peak] if step is not None else []
    if step is None and held is not None and held.held.total is not None:
        lows, highs = [0], [held.held.total]
    if not highs:
        return None
    scale = scale_for(max(0, min(lows) - baseline), max(1, max(highs) - baseline))
    if before.scale is None or before.structure != state.tree.version:
        return scale
    joined = before.scale.joined(scale)
    # An axis of steps that were much higher would leave this one a narrow band.
    return joined if joined.high - joined.low <= _MAX_GROWTH * (scale.high - scale.low) else scale


def step_lines(
    state: RunState, width: int, height: int, scale: Scale | None, shares: Mapping[Phase, float], *, colour: bool = True
) -> list[Line]:
    """Return the curve, the phases below it, what is held at the peak, what is from before training, and the newest totals."""
    step, held = step_curve(state), held_shown(state)
    if held is None and step is None:
        return waiting_lines(state, width)[:height]
    numbers = held_lines(state, held, scale, width, colour=colour) if held is not None else []
    # In a low, narrow panel a short form of what the driver says takes one row of the parts that are held.
    device = [] if width >= WIDE else nvml_lines(state, width, 1) or device_rows(state, width, 1)
    if step is not None and width < WIDE and height < _ROWS_WITH_CURVE:
        lines = [*_peak_lines(state, width), *numbers][: height - len(device)]
        return [fit(line, width) for line in (*lines, *device)]
    live = live_line(state, width) if width >= WIDE or height >= _ROWS_WITH_TOTALS else []
    owners = owner_line(state, width) if width >= WIDE else []
    numbers += owners
    taken = len(numbers) + len(live)
    notes = warning_lines(state, width, max(0, height - taken - 1 - _MIN_CURVE_ROWS))
    if device and len(notes) < 2:
        notes, room = [], height - len(live) - len(device) - 1 - _MIN_CURVE_ROWS
        numbers = [*numbers[: max(0, room)], *device]
    if height - taken - len(notes) > _GOOD_CURVE_ROWS or not (notes or owners):
        # The table by phase has these bytes too.
        numbers += before_lines(state, width)
    # In a narrow panel the totals of the newest step stand below the names of their phases.
    below = [*numbers, *live] if width >= WIDE else [*live, *numbers]
    room = height - len(below) - len(notes)
    above = _curve(state, step, scale, shares, width, room) if step is not None and scale is not None else []
    if not above:
        peak = _peak_lines(state, width) if width < WIDE else []
        above = [*peak, *wrap(((no_profile_text(state), "muted"),), width)][: max(0, room)]
        above += [()] * (room - len(above))
    return [fit(line, width) for line in (*above, *below, *notes)][:height]


def _peak_lines(state: RunState, width: int) -> list[Line]:
    """Return the peak with its phase and step, in as many lines as it takes."""
    peak = memory_peak(state)
    return wrap(((_peak_words(peak), "text"),), width) if peak is not None else []


def _peak_words(peak: MemoryPeak) -> str:
    return " ".join(filter(None, ("peak", _size(peak), peak.phase, f"@{peak.step:,}")))


def _size(peak: MemoryPeak) -> str:
    return bounded(peak.bound, short_bytes(peak.bytes))


def live_line(state: RunState, width: int) -> list[Line]:
    """Return the totals at the ends of the newest step's phases with the step; empty before the first step has ended.

    Where names have no room, the totals stand below those of the phases, in the same order, each behind a mark in its colour.
    """
    newest = state.step_memory.newest
    if newest is None:
        return []
    ends = {phase: getattr(newest, phase) for phase in PHASES_OF_STEP}
    known = {phase: above_load(state, total) for phase, total in ends.items() if total is not None}
    if not known:
        return []
    unit, role = unit_of(max(known.values())), STALE if is_stale(state, newest.step) else "text"
    numbers = {phase: in_unit(size, unit[1]).strip() for phase, size in known.items()}
    ending: Span = (f" {unit[0]}", "muted")
    lines: list[Line] = []
    if width >= WIDE:
        for names in ({phase: phase.value for phase in known}, SHORT_NAMES):
            gaps = ("", *["  "] * len(numbers))
            named = [
                ((f"{gap}{names[phase]} ", phase_role(phase)), (text, role))
                for gap, (phase, text) in zip(gaps, numbers.items())
            ]
            forms = (
                f"step {newest.step:,}, at the end of ",
                f"step {newest.step:,}, ends of ",
                f"ends @{newest.step:,}: ",
            )
            lines += [((form, "muted"), *chain(*named), ending) for form in forms]
    else:
        step: Span = (f"@{newest.step:,}", "muted")
        short = [((f" {SHORT_NAMES[phase]} ", phase_role(phase)), (text, role)) for phase, text in numbers.items()]
        lines.append((step, *chain(*short), ending))
        whole = {phase: f"{size / unit[1]:.0f}" for phase, size in known.items()}
        for gap, texts in ((" ", numbers), ("", numbers), ("", whole)):
            marked = [((_MARK, phase_role(phase)), (texts.get(phase, DASH), role)) for phase in PHASES_OF_STEP]
            lines.append((step, (gap, ""), *chain(*marked), ending))
    return [next((line for line in lines if line_width(line) <= width), lines[-1])]


def _curve(
    state: RunState, step: StepCurve, scale: Scale, shares: Mapping[Phase, float], width: int, rows: int
) -> list[Line]:
    is_near = says_from(scale, width, rows - 1)
    margin = margin_of(scale, says_from=is_near)
    if rows <= _MIN_CURVE_ROWS or width <= margin:
        return []
    baseline = state.held_since_load or 0
    owner = owner_of(state, step, is_wide=width >= WIDE)
    is_old = is_stale(state, step.step)
    return [*_chart(step, owner, tuple(shares.items()), scale, baseline, width - margin, rows - 1, is_old, is_near)]


@lru_cache(maxsize=2)
def _chart(
    step: StepCurve,
    owner: tuple[str, ...],
    shares: tuple[tuple[Phase, float], ...],
    scale: Scale,
    baseline: int,
    room: int,
    rows: int,
    is_old: bool,
    is_near: bool,
) -> tuple[Line, ...]:
    """Return the curve and the line of its phases. Kept, because it changes only with the step that is shown."""
    columns = columns_of(step, dict(shares), room)
    area = curve_lines(columns, owner, scale, baseline, rows, is_old=is_old, says_from=is_near)
    return (*area, phase_line(columns, dict(shares), margin_of(scale, says_from=is_near), unit_of(scale.high)[0]))


def owner_of(state: RunState, step: StepCurve, *, is_wide: bool = True) -> tuple[str, ...]:
    """Return what is said of the peak at its place in the curve, from the longest form to the shortest.

    A narrow panel has its size, phase and step there, because its title has no room for them; a wide one phase and module.
    """
    phase = step.peak_phase
    if not is_wide:
        size = short_bytes(above_load(state, step.peak))
        names = (phase.value, SHORT_NAMES.get(phase, phase.value))
        return (*(f"{size} {name} @{step.step:,}" for name in names), *(f"{name} @{step.step:,}" for name in names))
    if not 0 <= step.peak_module < len(state.tree.modules):
        return (phase.value,)
    module = state.tree.modules[step.peak_module]
    path = printable(module.path or module.name)
    return f"{phase}, at {path}", f"at {path}", path


def step_title(state: RunState, width: int) -> str:
    """Return the peak with its phase and step, and how old it is if it is old, in as many words as fit."""
    peak = memory_peak(state)
    if peak is None:
        held = newest(state)
        return step_words(state, held.step, width) if held is not None and held.step else ""
    size = _size(peak)
    if peak.phase is None:
        words = f"peak {size} {when_words(peak.step, None, peak.since)}"
        return words if len(words) <= width else f"peak {size}"
    name = SHORT_NAMES.get(peak.phase, peak.phase.value)
    forms = (
        f"peak {size} in {peak.phase}, {step_words(state, peak.step)}",
        f"peak {size} in {peak.phase}, step {peak.step:,}",
        _peak_words(peak),
        f"peak {size} {name} @{peak.step:,}",
        f"{size} {name} @{peak.step:,}",
        f"peak {size}",
    )
    return next((text for text in forms if len(text) <= width), size)


def step_words(state: RunState, step: int, width: int = 100) -> str:
    """Return the number of a step and, if there is room, that it was before the newest change."""
    words = f"step {step:,}"
    full = f"{words}, before the last change" if step <= state.changed_after else words
    return full if len(full) <= width else words
