"""What is held at the peak of a step, or at the end of a phase: a bar, its parts with their bytes, and the modules that hold
most. UI thread; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY

from gradtui.dataclass import dataclass
from gradtui.protocol.events import MemoryMeasured
from gradtui.run.state.freshness import is_memory_stale, is_stale
from gradtui.run.state.memory.devices import cuda_devices
from gradtui.run.state.memory.peak_owners import peak_owners
from gradtui.run.state.memory.run_memory import MemoryPeak, above_load, memory_peak
from gradtui.run.state.memory.step_curve import step_curve
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_on_host
from gradtui.run.text.memory_parts import BEFORE_TRAINING, MemoryPart, parts_at_peak, parts_of_memory
from gradtui.run.text.units import short_bytes
from gradtui.system.byte_units import unit_of
from gradtui.tui.panels.memory_curve import Scale, in_unit
from gradtui.tui.panels.memory_parts import sample
from gradtui.tui.panels.memory_table import chosen_phase
from gradtui.tui.rendering import STALE, Line, Span, elide_start, line_width, printable, width_of
from gradtui.tui.widgets import stacked_bar

WIDE = 44
"""From this panel width on there are a bar, the full names of its parts and a line for the bytes from before training."""
_MAX_OWNERS = 4
_MAX_OPTIMIZER = 9
_MIN_BAR, _MIN_NAME = 8, 8
_NARROW_LINES = 2
"""Lines of numbers in a narrow panel. The smallest parts are left out if they do not fit with the unit."""
_MIN_SHARE = 0.005
"""Of the total: a part that is smaller in every phase is not listed."""


def newest(state: RunState) -> MemoryMeasured | None:
    """Return the newest reading at the end of the fullest phase of a step; before the first step, of another phase."""
    phase = chosen_phase(state, None)
    return state.phases[phase].last if phase is not None else None


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
    held = state.phases[peak.phase].last if peak is not None and peak.phase is not None else None
    return held if held is not None and peak is not None and held.step == peak.step else None


def held_lines(state: RunState, held: HeldShown, scale: Scale | None, width: int, *, colour: bool) -> list[Line]:
    total = sum(part.size or 0 for part in held.parts)
    parts = [part for part in held.parts if _matters(part, total)] or list(held.parts)
    size = unit_of(max((part.size or 0 for part in parts), default=0))
    numbers = _Numbers(width, size, held.is_old, colour=colour)
    if width < WIDE:
        curve = step_curve(state)
        # Without a curve, or with that of the same step, the title or the curve names it.
        step = f"@{held.step:,}" if held.step and curve is not None and curve.step != held.step else ""
        return _narrow_numbers(parts, step, numbers)
    named = [(_name(part, state), part) for part in parts]
    lines = numbers.lines(named)
    explained = numbers.lines([(f"{name} (unattributed)" if name == "other" else name, part) for name, part in named])
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
        return self.width < WIDE

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
    if part.role == "optimizer_state" and len(kinds) == 1 and len(*kinds) <= _MAX_OPTIMIZER:
        return printable(*kinds)
    return part.name


def before_lines(state: RunState, width: int) -> list[Line]:
    """Return the bytes from before training, which have no place in the bar, and what is in "other" on the host.

    Empty in a narrow panel, where they are a part.
    """
    size, has_cuda = state.held_since_load, bool(cuda_devices(state.device))
    if width < WIDE or not (size or has_cuda):
        return []
    before = f"+{short_bytes(size)} held before training" if size else ""
    forms: tuple[str, ...] = (before,)
    if is_on_host(state):
        forms = (
            f"other: libraries, Python, tensors beyond the model · {before} (imports, data)",
            f"{before} (Python, libraries)",
            before,
        )
    elif has_cuda:
        # torch takes its workspaces from the allocator, which does not say what a block is for.
        held = (" (8–32 MiB each), tensors beyond the model", ", tensors beyond the model", ", tensors")
        other = (f"other: cuBLAS's workspaces{words}" for words in held)
        forms = (*(" · ".join(filter(None, (words, before))) for words in other), before or "other: cuBLAS, tensors")
    return [((next((form for form in forms if len(form) <= width), forms[-1]), "muted"),)]


def owner_line(state: RunState, width: int) -> list[Line]:
    """Return the modules that hold most of the peak, and what the others and no module hold; empty while that is unknown."""
    owners, traced = peak_owners(state), state.step_profile
    if not owners or traced is None:
        return []
    rest = above_load(state, traced.peak)
    unit = unit_of(max(owners[0][1], rest))
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
    if len(spans) == 1:
        return []
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
