"""The course of memory within one step, from its profile or from the peaks of its phases, and the phases' shares of the time.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from gradtui.dataclass import dataclass
from gradtui.protocol.events import MemoryMeasured, StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.parts.bounds import Bound, bound_of_peak
from gradtui.run.state.parts.phase_record import PhaseRecord
from gradtui.run.state.run_state import RunState

if TYPE_CHECKING:
    from gradtui.protocol.summary_memory import PhaseSummary

PHASES_OF_STEP = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
"""The phases whose memory makes up that of a step, in their order."""
_TIMED = tuple(phase for phase in Phase if phase not in (Phase.LOAD, Phase.EVAL))
"""The phases whose times make up the time of the steps."""
_STEADY = 0.05


@dataclass(frozen=True)
class PhaseTotals:
    """Totals within one stretch of a phase in bytes, in their order; at least one."""

    phase: Phase
    totals: tuple[int, ...]


@dataclass(frozen=True)
class StepCurve:
    """The totals within one step, in bytes."""

    step: int
    parts: tuple[PhaseTotals, ...]
    peak: int
    peak_phase: Phase
    peak_module: int = -1
    """Index of the module whose operation caused the peak; -1 where it is unknown."""
    bound: Bound = "exact"
    """What `peak` says: that of several devices is an upper bound if it was not profiled."""
    has_every_change: bool = True
    """Whether the totals follow every allocation. Otherwise each phase has only its peak and its end."""


def step_curve(state: RunState) -> StepCurve | None:
    """Return the newest step whose course is known; None before there is one."""
    return _profiled(state.step_profile) if state.step_profile is not None else _of_phases(state)


def _profiled(profile: StepMemoryProfiled) -> StepCurve | None:
    begins = [0, *(begin for _, begin in profile.phases[1:]), len(profile.curve)]
    stretches = [
        (phase, profile.curve[begin:end]) for (phase, _), begin, end in zip(profile.phases, begins, begins[1:])
    ]
    known = [each for each in stretches if each[1]]
    if not known:
        return None
    parts = tuple(
        PhaseTotals(phase, tuple(total for _, totals in group for total in totals))
        for phase, group in groupby(known, key=itemgetter(0))
    )
    return StepCurve(profile.step, parts, profile.peak, profile.peak_phase, profile.peak_module)


def _of_phases(state: RunState) -> StepCurve | None:
    """Return the peaks and ends of the phases of one step, if the allocator has counted them all."""
    known = measured_phases(state)
    if not known:
        return None
    parts = tuple(PhaseTotals(each.phase, (each.peak or 0, each.held.total or 0)) for each in known)
    highest = max(known, key=lambda each: each.peak or 0)
    bound = bound_of_peak(is_exact=True, devices=highest.devices)
    return StepCurve(known[0].step, parts, highest.peak or 0, highest.phase, bound=bound, has_every_change=False)


def measured_phases(state: RunState) -> list[MemoryMeasured]:
    """Return the memory of the phases of one step, if the allocator has counted the peaks of all; empty otherwise.

    Checked on a simulated device only.
    """
    measured = [state.phases[phase].last for phase in PHASES_OF_STEP]
    known = [each for each in measured if each is not None and _has_peak(each)]
    return known if len(known) == len(measured) and len({each.step for each in known}) == 1 else []


def _has_peak(measured: MemoryMeasured) -> bool:
    return measured.peak is not None and measured.peak_exact and measured.held.total is not None


def time_shares(phases: Mapping[Phase, PhaseRecord] | Mapping[str, PhaseSummary]) -> dict[Phase, float]:
    """Return the share of each phase in the time of the steps, evaluations excluded; empty while no time is known.

    It is device time if that was measured, else host time.
    """
    timed = {phase: each for phase in _TIMED if (each := phases.get(phase)) is not None}
    device = {phase: each.device_seconds or 0.0 for phase, each in timed.items() if each.device_steps}
    seconds = device or {phase: each.seconds or 0.0 for phase, each in timed.items()}
    total = sum(seconds.values())
    return {phase: each / total for phase, each in seconds.items() if each > 0} if total > 0 else {}


def shares_within_step(shares: Mapping[Phase, float]) -> dict[Phase, float]:
    """Return the shares of the phases that make up a step, of their time together: what lies between steps is left out."""
    own = {phase: shares[phase] for phase in PHASES_OF_STEP if shares.get(phase)}
    total = sum(own.values())
    return {phase: share / total for phase, share in own.items()}


def steady_shares(before: Mapping[Phase, float], now: Mapping[Phase, float]) -> Mapping[Phase, float]:
    """Return `before` as long as no share differs by more than a twentieth of the time, else `now`: a screen that shows the
    shares then rarely moves."""
    moved = any(abs(before.get(phase, 0.0) - now.get(phase, 0.0)) > _STEADY for phase in {*before, *now})
    return now if moved else before
