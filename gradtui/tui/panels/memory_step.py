"""The main view of the memory panel: the curve within the newest known step, and what is held by category. UI thread; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import chain

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.state.freshness import is_memory_stale, is_stale
from gradtui.state.run_memory import above_load
from gradtui.state.run_state import RunState
from gradtui.state.selectors import is_on_host, unexplained_at_load, unexplained_parts
from gradtui.state.step_curve import PHASES_OF_STEP, StepCurve, age_floor, step_curve
from gradtui.text import BEFORE_TRAINING, DASH, MemoryPart, no_profile_text, parts_of_memory, short_bytes
from gradtui.tui.panels.memory_curve import (
    SHORT_NAMES,
    Scale,
    columns_of,
    curve_lines,
    in_unit,
    margin_of,
    phase_line,
    scale_for,
    unit_of,
)
from gradtui.tui.panels.memory_notes import waiting_lines, warning_lines
from gradtui.tui.panels.memory_parts import sample
from gradtui.tui.panels.memory_table import chosen_phase
from gradtui.tui.rendering import STALE, Line, Span, fit, line_width, phase_role, printable, wrap
from gradtui.tui.widgets import stacked_bar

_MIN_CURVE_ROWS, _GOOD_CURVE_ROWS = 2, 5
_WIDE = 44
"""From this panel width on there are a bar, the full names of its parts and a line for the bytes from before training."""
_MARK = "▌"
"""Stands before the total of a phase, in its colour."""
_LONGEST_OPTIMIZER = 9
_MIN_BAR = 8
_NARROW_LINES = 2
"""Lines of numbers in a narrow panel. The smallest parts are left out if they do not fit with the unit."""
_MIN_SHARE = 0.005
"""Of the total: a part that is smaller in every phase is not listed."""


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
    baseline = unexplained_at_load(state) or 0
    lows = [min(min(part.totals) for part in step.parts)] if step is not None else []
    highs = [step.peak] if step is not None else []
    if step is None and held is not None and held.held.total is not None:
        lows, highs = [0], [held.held.total]
    if not highs:
        return None
    scale = scale_for(max(0, min(lows) - baseline), max(1, max(highs) - baseline))
    if before.scale is None or before.structure != state.tree.version:
        return scale
    return before.scale.joined(scale)


def newest(state: RunState) -> MemoryMeasured | None:
    """Return the newest reading at the end of the fullest phase of a step; before the first step, of another phase."""
    phase = chosen_phase(state, None)
    return state.phases[phase].last if phase is not None else None


def step_lines(
    state: RunState, width: int, height: int, scale: Scale | None, shares: Mapping[Phase, float], *, colour: bool = True
) -> list[Line]:
    """Return the curve, the phases below it, the bar of what is held, its numbers and the bytes from before training."""
    step, held = step_curve(state), newest(state)
    if held is None and step is None:
        return waiting_lines(state, width)[:height]
    notes = warning_lines(state, width)
    numbers = _held_lines(state, held, scale, width, colour=colour) if held is not None else []
    numbers = [*live_line(state, width), *numbers]
    notes = notes[: max(0, height - len(numbers) - 1 - _MIN_CURVE_ROWS)]
    if height - len(numbers) - len(notes) > _GOOD_CURVE_ROWS or not notes:
        # The table by phase has these bytes too.
        numbers += _before_lines(state, held, width)
    room = height - len(numbers) - len(notes)
    above = _curve(state, step, scale, shares, width, room) if step is not None and scale is not None else []
    if not above:
        above = wrap(((no_profile_text(state), "muted"),), width)[: max(0, room)]
        above += [()] * (room - len(above))
    return [fit(line, width) for line in (*above, *numbers, *notes)][:height]


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
    if width >= _WIDE:
        for names in ({phase: phase.value for phase in known}, SHORT_NAMES):
            named = [((f"  {names[phase]} ", phase_role(phase)), (text, role)) for phase, text in numbers.items()]
            lines.append(((f"step {newest.step:,}", "muted"), *chain(*named), ending))
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
    margin = margin_of(scale)
    if rows <= _MIN_CURVE_ROWS or width <= margin:
        return []
    baseline = unexplained_at_load(state) or 0
    owner = owner_of(state, step, with_phase=width >= _WIDE)
    is_old = is_stale(state, step.step)
    return [*_chart(step, owner, tuple(shares.items()), scale, baseline, width - margin, rows - 1, is_old)]


@lru_cache(maxsize=2)
def _chart(
    step: StepCurve,
    owner: str,
    shares: tuple[tuple[Phase, float], ...],
    scale: Scale,
    baseline: int,
    room: int,
    rows: int,
    is_old: bool,
) -> tuple[Line, ...]:
    """Return the curve and the line of its phases. Kept, because it changes only with the step that is shown."""
    columns = columns_of(step, dict(shares), room)
    area = curve_lines(columns, owner, scale, baseline, rows, is_old=is_old)
    return (*area, phase_line(columns, dict(shares), margin_of(scale)))


def owner_of(state: RunState, step: StepCurve, *, with_phase: bool = True) -> str:
    """Return the phase of the peak and the path of the module, as far as it is known."""
    if not 0 <= step.peak_module < len(state.tree.modules):
        return step.peak_phase.value
    module = state.tree.modules[step.peak_module]
    path = printable(module.path or module.name)
    return f"{step.peak_phase}, {path}" if with_phase else path


def _held_lines(state: RunState, held: MemoryMeasured, scale: Scale | None, width: int, *, colour: bool) -> list[Line]:
    parts = [part for part in parts_of_memory(held.held, state) if part.within_total]
    size = unit_of(max((part.size or 0 for part in parts), default=0))
    numbers = _Numbers(width, size, is_memory_stale(state, held), colour=colour)
    if width < _WIDE:
        curve = step_curve(state)
        # Without a curve, or with that of the same step, the title names it.
        step = f"@{held.step:,}" if held.step and curve is not None and curve.step != held.step else ""
        return _narrow_numbers(_shown(parts, state), step, numbers)
    own = [part for part in parts if part.role != BEFORE_TRAINING]
    lines = [_bar(held, own, scale, width, colour=colour)]
    lines += numbers.lines([(_name(part, state), part) for part in _shown(own, state)])
    return lines


def _narrow_numbers(parts: list[MemoryPart], step: str, numbers: _Numbers) -> list[Line]:
    """Return as many parts as fit into a narrow panel, the largest ones, with the step if there is room or if it is old."""
    while True:
        named = [(part.short_name, part) for part in parts]
        lines = numbers.lines(named, step)
        if len(lines) > _NARROW_LINES and not numbers.is_old:
            lines = numbers.lines(named)
        if len(lines) <= _NARROW_LINES or len(parts) == 1:
            return lines[:_NARROW_LINES]
        parts = [part for part in parts if part is not min(parts, key=lambda part: part.size or 0)]


def _shown(parts: list[MemoryPart], state: RunState) -> list[MemoryPart]:
    """Return the parts that matter in any phase: a part keeps its place even while it is empty."""
    measured = [record.last.held for record in state.phases.values() if record.last is not None]
    roles = {part.role for held in measured for part in parts_of_memory(held, state) if _matters(part, held)}
    return [part for part in parts if part.role in roles]


def _matters(part: MemoryPart, held: MemoryBytes) -> bool:
    return part.size is None or part.size >= max(1.0, _MIN_SHARE * (held.total or 0))


def _bar(held: MemoryMeasured, parts: list[MemoryPart], scale: Scale | None, width: int, *, colour: bool) -> Line:
    words = f" end of {held.phase}, step {held.step:,}" if held.step else f" end of {held.phase}"
    room = max(_MIN_BAR, width - len(words))
    sizes = [(part.role, float(part.size or 0)) for part in parts]
    total = sum(max(0.0, size) for _, size in sizes)
    patterns = "".join(sample(part.role, colour=colour) for part in parts)
    bar = stacked_bar(sizes, max(total, float(scale.high if scale is not None else 0)), room, patterns=patterns)
    return (*bar, (words, "muted"))


@dataclass(frozen=True)
class _Numbers:
    """Parts of the memory with their numbers in one unit, in as few lines as possible."""

    width: int
    unit: tuple[str, int]
    is_old: bool
    _: KW_ONLY
    colour: bool

    @property
    def _is_narrow(self) -> bool:
        return self.width < _WIDE

    def lines(self, parts: Sequence[tuple[str, MemoryPart]], step: str = "") -> list[Line]:
        """Return the lines of named parts. The last one names the unit and, if it is given, the step."""
        lines: list[list[Span]] = [[]]
        gap = " " if self._is_narrow else "  "
        for name, part in parts:
            entry = self._entry(name, part)
            if lines[-1] and line_width(lines[-1]) + len(gap) + line_width(entry) > self.width:
                lines.append([])
            lines[-1] += [(gap, ""), *entry] if lines[-1] else entry
        ending: list[Span] = [*([(f"{step} ", "muted")] if step else []), (self.unit[0], "muted")]
        if lines[-1] and line_width(lines[-1]) + 1 + line_width(ending) > self.width:
            lines.append([])
        lines[-1] += [(" " * (self.width - line_width(lines[-1]) - line_width(ending)), ""), *ending]
        return [tuple(line) for line in lines]

    def _entry(self, name: str, part: MemoryPart) -> list[Span]:
        number = in_unit(part.size, self.unit[1]) if part.size is not None else "   –"
        sign: list[Span] = [] if self._is_narrow else [(sample(part.role, colour=self.colour) + " ", part.role)]
        role = "text" if part.size and not self.is_old else STALE
        return [*sign, (f"{name} ", part.role if self._is_narrow else "muted"), (number, role)]


def _name(part: MemoryPart, state: RunState) -> str:
    kinds = {optimizer.type_name for optimizer in state.optimizers}
    if part.role == "optimizer_state" and len(kinds) == 1 and len(*kinds) <= _LONGEST_OPTIMIZER:
        return printable(*kinds)
    return part.name


def _before_lines(state: RunState, held: MemoryMeasured | None, width: int) -> list[Line]:
    """Return the bytes from before training, which have no place in the bar; empty in a narrow panel, where they are a part."""
    size = unexplained_parts(state, held.held)[0] if held is not None else None
    if not size or width < _WIDE:
        return []
    words = f"+{short_bytes(size)} held before training"
    whose = " (Python, libraries)" if is_on_host(state) else ""
    return [((words + (whose if len(words + whose) <= width else ""), "muted"),)]


def step_title(state: RunState, width: int) -> str:
    """Return the step of the figures, how old they are if they are old, and its peak, in as many words as fit.

    As in the curve, the bytes from before training are subtracted from the peak.
    """
    step, held = step_curve(state), newest(state)
    if step is None:
        return step_words(state, held.step, width) if held is not None and held.step else ""
    peak = short_bytes(max(0, step.peak - (unexplained_at_load(state) or 0)))
    full = f"within {step_words(state, step.step)} · peak {peak} in {step.peak_phase}"
    shorter = (
        f"{step_words(state, step.step)} · peak {peak} in {step.peak_phase}",
        f"{step_words(state, step.step)} · peak {peak}",
        f"step {step.step:,} · peak {peak} in {step.peak_phase}",
        f"step {step.step:,} · peak {peak}",
        f"step {step.step:,} · {peak}",
        f"@{step.step:,} · {peak}",
    )
    return next((text for text in (full, *shorter) if len(text) <= width), shorter[-1])


def step_words(state: RunState, step: int, width: int = 100) -> str:
    """Return the number of a step and, if there is room, that it was before the newest change, or long ago."""
    age, words = age_floor(state, step), f"step {step:,}"
    full = words if age is None else f"{words}, {age:,}+ steps ago"
    if step <= state.changed_after:
        full = f"{words}, before the last change"
    return full if len(full) <= width else words
