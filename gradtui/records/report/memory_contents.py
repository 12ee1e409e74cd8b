"""What a report says about memory: the parts of each phase, the course of a step, the totals over steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import RunSummary
from gradtui.protocol.summary_memory import DeviceEntry, DeviceParts, MemorySpike, PeakHolding, StepPeak
from gradtui.protocol.vocabulary import Phase
from gradtui.records.report.run_series import RunSeries
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP, PhaseTotals, StepCurve, time_shares
from gradtui.run.text import MEMORY_PARTS, memory_part_name
from gradtui.run.text.memory import source_text
from gradtui.run.text.memory_parts import parts_of

_HOLDERS = 12
_PHASES = (Phase.LOAD, Phase.DATA, *PHASES_OF_STEP, Phase.ZERO_GRAD, Phase.EVAL, Phase.OTHER)


@dataclass(frozen=True)
class PhaseMemory:
    """One phase of the run; None where a value is unknown. Sizes are in bytes."""

    phase: Phase
    seconds: float
    share: float | None
    """Of the time of all phases."""
    parts: tuple[tuple[str, str, int | None], ...]
    """(role, name, size) of each part at the end of the phase."""
    total: int | None
    peak: int | None
    """Of all steps."""
    peak_bound: str
    owner: str
    """The models of the peak, if the run had several."""


@dataclass(frozen=True)
class StepMemory:
    """The course of memory within a step."""

    step: int
    base: int
    """Bytes that are in no total: those from before training, or what the step holds throughout if that is less."""
    parts: tuple[PhaseTotals, ...]
    """Without `base`."""
    peak: int
    peak_phase: Phase
    peak_place: str
    is_complete: bool
    """Whether every allocation is in it."""
    holders: tuple[PeakHolding, ...]
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
    spikes: tuple[MemorySpike, ...]
    """The kept steps whose peak was far above those around them."""
    notes: tuple[str, ...]
    """What stays alive, what grows, what is most."""
    device: tuple[tuple[str, int | None], ...]
    """The parts of the driver's figure, of each device; empty without a CUDA device."""

    @property
    def totals_base(self) -> int:
        """Bytes that a chart of `totals` leaves out: those from before training, or the least total if that is less."""
        return min(self.before_training, *(round(total) for _, points in self.totals for _, total in points))


def memory_contents(run: RunSummary, series: RunSeries) -> MemoryContents:
    """Return what is known of memory."""
    before = run.memory.before_training or 0
    return MemoryContents(
        source_text(run),
        tuple(_phases(run)),
        before,
        _step(run.step_peak, series.step, before) if series.step is not None else None,
        series.no_step,
        series.totals,
        run.memory.spikes,
        run.memory.notes,
        tuple(_device_parts(run.device_memory.devices)) if run.device_memory is not None else (),
    )


def _device_parts(devices: Sequence[DeviceEntry]) -> Iterator[tuple[str, int | None]]:
    for device in devices:
        where = f"cuda:{device.index} " if len(devices) > 1 else ""
        if device.parts.reserved is not None:
            yield from ((where + name, getattr(device.parts, name)) for name in _parts_in_use(device.parts))


def _parts_in_use(parts: DeviceParts) -> tuple[str, ...]:
    allocated = ("allocated",) if parts.rounding is None else ("requested", "rounding")
    return (*allocated, "cached", "outside" if parts.scope == "device" else "context")


def part_names() -> dict[str, str]:
    """Return the names of all parts by their roles, in the order in which they are drawn."""
    return {role: memory_part_name(role) for role in MEMORY_PARTS}


def _phases(run: RunSummary) -> Iterator[PhaseMemory]:
    ends = [each.bytes_end for each in run.phases.values() if each.bytes_end is not None]
    shares = time_shares(run.phases)
    for phase in _PHASES:
        record = run.phases[phase]
        held = record.bytes_end
        if held is None and not record.seconds and not record.count:
            continue
        parts = parts_of(held, ends, run.memory.before_training) if held is not None else []
        yield PhaseMemory(
            phase,
            record.seconds or 0.0,
            shares.get(phase),
            tuple((part.role, part.name, part.size) for part in parts if part.within_total),
            held.total if held is not None else None,
            record.bytes_peak,
            record.peak_bound or "exact",
            " and ".join(record.peak_models) if len(run.models) > 1 else "",
        )


def _step(peak: StepPeak | None, curve: StepCurve, before: int) -> StepMemory:
    # What imports have left may be released after the first forward.
    base = min(before, *(total for part in curve.parts for total in part.totals))
    holders = [_holder(each, base) for each in (peak.holdings if peak is not None else ())]
    holders = sorted((each for each in holders if each.bytes > 0), key=lambda each: -each.bytes)
    return StepMemory(
        curve.step,
        base,
        tuple(PhaseTotals(part.phase, tuple(total - base for total in part.totals)) for part in curve.parts),
        curve.peak - base,
        curve.peak_phase,
        peak.place if peak is not None else "",
        curve.has_every_change and (peak is None or peak.whole),
        tuple(holders[:_HOLDERS]),
        max(0, len(holders) - _HOLDERS),
    )


def _holder(holding: PeakHolding, base: int) -> PeakHolding:
    size = holding.bytes - base if holding.kind == "other" else holding.bytes
    return replace(holding, kind=memory_part_name(holding.kind), bytes=size)
