"""What a report says about memory: the parts of each phase, the course of a step, the totals over steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.events import MemorySpikeFound
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.run.state.bounds import Bound
from gradtui.run.state.devices import cuda_devices
from gradtui.run.state.model_records import peak_owner
from gradtui.run.state.reconciliation import reconcile
from gradtui.run.state.run_memory import phase_bound
from gradtui.run.state.run_state import RunState
from gradtui.run.state.step_curve import PHASES_OF_STEP, step_curve, time_shares
from gradtui.run.text import (
    MEMORY_PARTS,
    growth_text,
    memory_part_name,
    memory_source_text,
    no_profile_text,
    parts_of_memory,
)
from gradtui.run.text.memory import graph_lines, most_saved_text, place_of, spikes_text

_HOLDERS = 12
_PHASES = (Phase.LOAD, Phase.DATA, *PHASES_OF_STEP, Phase.ZERO_GRAD, Phase.EVAL, Phase.OTHER)


@dataclass(frozen=True)
class PhaseMemory:
    """One phase of the run; None where a value is unknown. Sizes are in bytes."""

    phase: Phase
    seconds: float
    share: float | None
    """Of the time of all phases."""
    step: int | None
    """The step of `parts`."""
    parts: tuple[tuple[str, str, int | None], ...]
    """(role, name, size) of each part at the end of the phase."""
    total: int | None
    peak: int | None
    """Of all steps."""
    peak_bound: Bound
    owner: str
    """The models of the peak, if the run had several."""


@dataclass(frozen=True)
class CurvePart:
    """Totals within one stretch of a step, without `StepMemory.base`."""

    phase: Phase
    totals: tuple[int, ...]


@dataclass(frozen=True)
class Holder:
    """What held memory at the peak of a step."""

    kind: str
    place: str
    bytes: int
    tensors: int


@dataclass(frozen=True)
class StepMemory:
    """The course of memory within a step."""

    step: int
    base: int
    """Bytes that are in no total: those from before training, or what the step holds throughout if that is less."""
    parts: tuple[CurvePart, ...]
    peak: int
    peak_phase: Phase
    peak_place: str
    is_complete: bool
    """Whether every allocation is in it."""
    holders: tuple[Holder, ...]
    holders_omitted: int


@dataclass(frozen=True)
class MemoryContents:
    """All that a report says about memory."""

    source: str
    phases: tuple[PhaseMemory, ...]
    before_training: int
    """Bytes held before the first forward that no category explains; 0 if unknown."""
    step: StepMemory | None
    no_step: str
    """Why there is no course of a step; empty if there is one."""
    totals: tuple[tuple[Phase, tuple[tuple[int, float], ...]], ...]
    """By phase of a step: (step, total at its end)."""
    spikes: tuple[MemorySpikeFound, ...]
    """The kept steps whose peak was far above those around them."""
    notes: tuple[str, ...]
    """What stays alive, what grows, what is most."""
    device: tuple[tuple[str, int | None], ...]
    """The parts of the driver's figure, of each device; empty without a CUDA device."""

    @property
    def totals_base(self) -> int:
        """Bytes that a chart of `totals` leaves out: those from before training, or the least total if that is less."""
        return min(self.before_training, *(round(total) for _, points in self.totals for _, total in points))


def memory_contents(state: RunState) -> MemoryContents:
    """Return what is known of memory."""
    before = state.held_since_load or 0
    step = _step(state, before)
    totals = ((phase, tuple(state.phases[phase].totals)) for phase in PHASES_OF_STEP)
    return MemoryContents(
        memory_source_text(state),
        tuple(_phases(state)),
        before,
        step,
        "" if step is not None else no_profile_text(state),
        tuple((phase, points) for phase, points in totals if points),
        tuple(state.step_memory.spikes),
        tuple(_notes(state)),
        tuple(_device_parts(state)),
    )


def _device_parts(state: RunState) -> Iterator[tuple[str, int | None]]:
    devices = cuda_devices(state.device)
    for device in devices:
        found = reconcile(device)
        where = f"cuda:{device.index} " if len(devices) > 1 else ""
        if found is not None:
            yield from ((where + part.name, part.size) for part in found.parts)


def part_names() -> dict[str, str]:
    """Return the names of all parts by their roles, in the order in which they are drawn."""
    return {role: memory_part_name(role) for role in MEMORY_PARTS}


def _phases(state: RunState) -> Sequence[PhaseMemory]:
    shares = time_shares(state)
    rows = []
    for phase in _PHASES:
        record = state.phases[phase]
        if record.last is None and not record.seconds and not record.count:
            continue
        parts = [] if record.last is None else [p for p in parts_of_memory(record.last.held, state) if p.within_total]
        rows.append(
            PhaseMemory(
                phase,
                record.seconds,
                shares.get(phase),
                record.last.step if record.last is not None else None,
                tuple((part.role, part.name, part.size) for part in parts),
                record.last.held.total if record.last is not None else None,
                record.peak,
                phase_bound(state, record),
                peak_owner(state, record),
            )
        )
    return rows


def _step(state: RunState, before: int) -> StepMemory | None:
    curve = step_curve(state)
    if curve is None:
        return None
    # What imports have left may be released after the first forward.
    base = min(before, *(total for part in curve.parts for total in part.totals))
    holdings = state.step_profile.holdings if state.step_profile is not None else ()
    holders = [each for each in (_holder(state, holding, base) for holding in holdings) if each.bytes > 0]
    holders.sort(key=lambda each: -each.bytes)
    return StepMemory(
        curve.step,
        base,
        tuple(CurvePart(part.phase, tuple(total - base for total in part.totals)) for part in curve.parts),
        curve.peak - base,
        curve.peak_phase,
        place_of(state, curve.peak_module).removeprefix(" at "),
        curve.has_every_change and (state.step_profile is None or state.step_profile.whole),
        tuple(holders[:_HOLDERS]),
        max(0, len(holders) - _HOLDERS),
    )


def _holder(state: RunState, holding: Holding, base: int) -> Holder:
    module = state.tree.modules[holding.module] if 0 <= holding.module < len(state.tree.modules) else None
    size = holding.bytes - base if holding.kind == "other" else holding.bytes
    place = "" if module is None else module.path or module.name
    return Holder(memory_part_name(holding.kind), place, size, holding.tensors)


def _notes(state: RunState) -> list[str]:
    saved = most_saved_text(state.tree)
    growth = state.growth.current
    return [
        *([saved] if saved is not None else []),
        *graph_lines(state),
        *([growth_text(growth)] if growth is not None else []),
        *filter(None, [spikes_text(state)]),
    ]
