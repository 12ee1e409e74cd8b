"""The main view of the memory panel: the course of the newest known step, and what holds its peak. UI thread; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import chain

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.state.freshness import is_memory_stale, is_stale
from gradtui.state.peak_owners import peak_owners
from gradtui.state.run_memory import MemoryPeak, above_load, memory_peak
from gradtui.state.run_state import RunState
from gradtui.state.selectors import is_on_host
from gradtui.state.step_curve import PHASES_OF_STEP, StepCurve, step_curve
from gradtui.text import BEFORE_TRAINING, DASH, MemoryPart, no_profile_text, parts_at_peak, parts_of_memory, short_bytes
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
    unit_of,
)
from gradtui.tui.panels.memory_notes import waiting_lines, warning_lines
from gradtui.tui.panels.memory_parts import sample
from gradtui.tui.panels.memory_table import chosen_phase
from gradtui.tui.rendering import STALE, Line, Span, elide_start, fit, line_width, phase_role, printable, width_of, wrap
from gradtui.tui.widgets import stacked_bar

_MIN_CURVE_ROWS, _GOOD_CURVE_ROWS = 2, 5
_WIDE = 44
"""From this panel width on there are a bar, the full names of its parts and a line for the bytes from before training."""
_MARK = "▌"
"""Stands before the total of a phase, in its colour."""
_MAX_GROWTH = 2
"""Of the range of the axis, beyond that of the step shown."""
_ROWS_WITH_TOTALS, _ROWS_WITH_CURVE = 6, 5
"""In a narrow panel, from this height on there are the totals of the newest step, and the curve."""
_MAX_OWNERS = 4
_LONGEST_OPTIMIZER = 9
_MIN_BAR, _MIN_NAME = 8, 8
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


def newest(state: RunState) -> MemoryMeasured | None:
    """Return the newest reading at the end of the fullest phase of a step; before the first step, of another phase."""
    phase = chosen_phase(state, None)
    return state.phases[phase].last if phase is not None else None


def step_lines(
    state: RunState, width: int, height: int, scale: Scale | None, shares: Mapping[Phase, float], *, colour: bool = True
) -> list[Line]:
    """Return the curve, the phases below it, what is held at the peak, what is from before training, and the newest totals."""
    step, held = step_curve(state), held_shown(state)
    if held is None and step is None:
        return waiting_lines(state, width)[:height]
    notes = warning_lines(state, width)
    numbers = _held_lines(state, held, scale, width, colour=colour) if held is not None else []
    if step is not None and width < _WIDE and height < _ROWS_WITH_CURVE:
        return [fit(line, width) for line in (*_peak_lines(state, width), *numbers)][:height]
    live = live_line(state, width) if width >= _WIDE or height >= _ROWS_WITH_TOTALS else []
    owners = owner_line(state, width) if width >= _WIDE else []
    numbers += owners
    taken = len(numbers) + len(live)
    notes = notes[: max(0, height - taken - 1 - _MIN_CURVE_ROWS)]
    if height - taken - len(notes) > _GOOD_CURVE_ROWS or not (notes or owners):
        # The table by phase has these bytes too.
        numbers += _before_lines(state, width)
    # In a narrow panel the totals of the newest step stand below the names of their phases.
    below = [*numbers, *live] if width >= _WIDE else [*live, *numbers]
    room = height - len(below) - len(notes)
    above = _curve(state, step, scale, shares, width, room) if step is not None and scale is not None else []
    if not above:
        peak = _peak_lines(state, width) if width < _WIDE else []
        above = [*peak, *wrap(((no_profile_text(state), "muted"),), width)][: max(0, room)]
        above += [()] * (room - len(above))
    return [fit(line, width) for line in (*above, *below, *notes)][:height]


def _peak_lines(state: RunState, width: int) -> list[Line]:
    """Return the peak with its phase and step, in as many lines as it takes."""
    peak = memory_peak(state)
    return wrap(((_peak_words(peak), "text"),), width) if peak is not None else []


def _peak_words(peak: MemoryPeak) -> str:
    return f"peak {_size(peak)} {peak.phase} @{peak.step:,}"


def _size(peak: MemoryPeak) -> str:
    return f"{'' if peak.is_exact else '≥'}{short_bytes(peak.bytes)}"


def owner_line(state: RunState, width: int) -> list[Line]:
    """Return the modules that hold most of the peak, and what the others and no module hold; empty while that is unknown."""
    owners, traced = peak_owners(state), state.traced
    if not owners or traced is None:
        return []
    unit = unit_of(owners[0][1])
    rest = above_load(state, traced.peak)
    spans: list[Span] = [("held by", "muted")]
    for index, size in owners[:_MAX_OWNERS]:
        module = state.tree.modules[index]
        number = in_unit(size, unit[1]).strip()
        ending = f"   elsewhere {in_unit(max(0, rest - size), unit[1]).strip()} {unit[0]}"
        room = width - line_width(spans) - width_of(f"  {number}{ending}")
        if room < _MIN_NAME or not number.strip("0."):
            break
        name = elide_start(printable(module.path or module.name), room)
        spans += [(f"  {name} ", "muted"), (number, _role(state, traced.step))]
        rest -= size
    return [
        (
            *spans,
            ("  elsewhere ", "muted"),
            (f"{in_unit(max(0, rest), unit[1]).strip()}", "text"),
            (f" {unit[0]}", "muted"),
        )
    ]


def _role(state: RunState, step: int) -> str:
    return STALE if is_stale(state, step) else "text"


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
    owner = owner_of(state, step, is_wide=width >= _WIDE)
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


@dataclass(frozen=True)
class HeldShown:
    """The parts of the memory at one moment of a step, and that moment in words."""

    parts: tuple[MemoryPart, ...]
    step: int
    moment: str
    is_old: bool


def held_shown(state: RunState) -> HeldShown | None:
    """Return what is held at the peak of the newest step whose course is known; before there is one, at the end of a phase."""
    curve, peak, parts = step_curve(state), memory_peak(state), parts_at_peak(state)
    if curve is not None and parts:
        is_of_peak = peak is not None and peak.step == curve.step
        moment = f"at {'the peak' if is_of_peak else 'its highest'}, step {curve.step:,}"
        return HeldShown(tuple(parts), curve.step, moment, is_stale(state, curve.step))
    held = _held_at(state, peak) or newest(state)
    if held is None:
        return None
    parts = [part for part in parts_of_memory(held.held, state) if part.within_total and part.role != BEFORE_TRAINING]
    moment = f"end of {held.phase}, step {held.step:,}" if held.step else f"end of {held.phase}"
    return HeldShown(tuple(_shown(parts, state)), held.step, moment, is_memory_stale(state, held))


def _held_at(state: RunState, peak: MemoryPeak | None) -> MemoryMeasured | None:
    """Return the reading that is the highest known total; None if that is of no reading."""
    held = state.phases[peak.phase].last if peak is not None else None
    return held if held is not None and peak is not None and held.step == peak.step else None


def _held_lines(state: RunState, held: HeldShown, scale: Scale | None, width: int, *, colour: bool) -> list[Line]:
    total = sum(part.size or 0 for part in held.parts)
    parts = [part for part in held.parts if _matters(part, total)] or list(held.parts)
    size = unit_of(max((part.size or 0 for part in parts), default=0))
    numbers = _Numbers(width, size, held.is_old, colour=colour)
    if width < _WIDE:
        curve = step_curve(state)
        # Without a curve, or with that of the same step, the title or the curve names it.
        step = f"@{held.step:,}" if held.step and curve is not None and curve.step != held.step else ""
        return _narrow_numbers(parts, step, numbers)
    named = [(_name(part, state), part) for part in parts]
    lines = numbers.lines(named)
    if is_on_host(state):
        explained = numbers.lines([(f"{name} (libraries)" if name == "other" else name, part) for name, part in named])
        lines = explained if len(explained) == len(lines) else lines
    return [_bar(held, scale, width, colour=colour), *lines]


def _narrow_numbers(parts: list[MemoryPart], step: str, numbers: _Numbers) -> list[Line]:
    """Return as many parts as fit into a narrow panel, the largest ones, with the step if there is room or if it is old.

    What the others hold is added up, so that the sum stays.
    """
    left_out: list[MemoryPart] = []
    while True:
        rest = MemoryPart("other", sum(part.size or 0 for part in left_out), "rest", "rest")
        named = [(part.short_name, part) for part in (*parts, *([rest] if left_out else []))]
        lines = numbers.lines(named, step)
        if len(lines) > _NARROW_LINES and not numbers.is_old:
            lines = numbers.lines(named)
        if len(lines) <= _NARROW_LINES or len(parts) == 1:
            return lines[:_NARROW_LINES]
        left_out.append(min(parts, key=lambda part: part.size or 0))
        parts = [part for part in parts if part is not left_out[-1]]


def _shown(parts: list[MemoryPart], state: RunState) -> list[MemoryPart]:
    """Return the parts that matter in any phase: a part keeps its place even while it is empty."""
    measured = [record.last.held for record in state.phases.values() if record.last is not None]
    roles = {part.role for held in measured for part in parts_of_memory(held, state) if _matters(part, held.total or 0)}
    return [part for part in parts if part.role in roles]


def _matters(part: MemoryPart, total: int) -> bool:
    return part.size is None or abs(part.size) >= max(1.0, _MIN_SHARE * total)


def _bar(held: HeldShown, scale: Scale | None, width: int, *, colour: bool) -> Line:
    words = f" {held.moment}"
    room = max(_MIN_BAR, width - len(words))
    sizes = [(part.role, float(part.size or 0)) for part in held.parts]
    total = sum(max(0.0, size) for _, size in sizes)
    patterns = "".join(sample(part.role, colour=colour) for part in held.parts)
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


def _before_lines(state: RunState, width: int) -> list[Line]:
    """Return the bytes from before training, which have no place in the bar, and what is in "other" on the host.

    Empty in a narrow panel, where they are a part.
    """
    size = state.held_since_load
    if not size or width < _WIDE:
        return []
    before = f"+{short_bytes(size)} held before training"
    if not is_on_host(state):
        return [((before, "muted"),)]
    forms = (
        f"other: libraries, Python, tensors beyond the model · {before} (imports, data)",
        f"{before} (Python, libraries)",
        before,
    )
    return [((next((form for form in forms if len(form) <= width), before), "muted"),)]


def step_title(state: RunState, width: int) -> str:
    """Return the peak with its phase and step, and how old it is if it is old, in as many words as fit."""
    peak = memory_peak(state)
    if peak is None:
        held = newest(state)
        return step_words(state, held.step, width) if held is not None and held.step else ""
    size, name = _size(peak), SHORT_NAMES.get(peak.phase, peak.phase.value)
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
