"""The course of memory within a step, from a profile or from the peaks of its phases."""

from __future__ import annotations

import pytest
from helpers.fakes import MIB, coop_model, held
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_curve import PhaseTotals, steady_shares, step_curve, time_shares
from gradtui.run.state.run_state import RunState

MODEL = coop_model()
F, B, OPT = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER


def profile(curve: tuple[int, ...], phases: tuple[tuple[Phase, int], ...]) -> ev.StepMemoryProfiled:
    highest = (None,) * len(MODEL.modules)
    return ev.StepMemoryProfiled(1.0, 12, curve, 500, phases, max(curve), B, 3, (), highest, True)


def measured(phase: Phase, step: int, peak: int | None, *, exact: bool = True) -> ev.MemoryMeasured:
    return ev.MemoryMeasured(1.0, step, phase, held(MIB, 0, 0, 0), peak, exact, True)


def progress(steps: int, *seconds: tuple[Phase, float]) -> ev.Progress:
    times = tuple(ev.PhaseTime(phase, each, 1) for phase, each in seconds)
    return ev.Progress(1.0, steps, steps, steps, 0, (steps,), times, 0.0, 1, 1)


def test_a_profile_is_divided_where_its_phases_begin() -> None:
    found = step_curve(state_after(MODEL, profile((1, 4, 9, 3, 2), ((F, 0), (B, 2), (OPT, 4)))))
    assert found is not None
    assert found.parts == (PhaseTotals(F, (1, 4)), PhaseTotals(B, (9, 3)), PhaseTotals(OPT, (2,)))
    assert (found.step, found.peak, found.peak_phase, found.peak_module) == (12, 9, B, 3)


def test_phase_without_point_joins_its_neighbours() -> None:
    found = step_curve(state_after(MODEL, profile((1, 2, 3), ((F, 0), (Phase.OTHER, 1), (F, 1), (B, 2)))))
    assert found is not None
    assert found.parts == (PhaseTotals(F, (1, 2)), PhaseTotals(B, (3,)))


def test_exact_peaks_of_step_make_course() -> None:
    end = held(MIB, 0, 0, 0).total
    found = step_curve(state_after(*(measured(phase, 7, peak) for phase, peak in ((F, 90), (B, 95), (OPT, 40)))))
    assert found is not None
    assert found.parts == (
        PhaseTotals(F, (90, end or 0)),
        PhaseTotals(B, (95, end or 0)),
        PhaseTotals(OPT, (40, end or 0)),
    )
    assert (found.step, found.peak, found.peak_phase, found.peak_module) == (7, 95, B, -1)
    assert not found.has_every_change


@pytest.mark.parametrize(
    "last",
    [measured(OPT, 8, 40), measured(OPT, 7, None), measured(OPT, 7, 40, exact=False)],
    ids=["another step", "no peak", "a lower bound"],
)
def test_inexact_or_mixed_peaks_make_no_course(last: ev.MemoryMeasured) -> None:
    assert step_curve(state_after(measured(F, 7, 90), measured(B, 7, 95), last)) is None


def test_shares_are_those_of_the_steps_time() -> None:
    times = ((F, 3.0), (B, 5.0), (OPT, 1.0), (Phase.DATA, 1.0), (Phase.LOAD, 60.0), (Phase.EVAL, 20.0))
    assert time_shares(state_after(progress(4, *times)).phases) == {F: 0.3, B: 0.5, OPT: 0.1, Phase.DATA: 0.1}
    assert time_shares(RunState().phases) == {}


def test_device_time_counts_where_it_was_measured() -> None:
    device = ev.DeviceTimesMeasured(1.0, 4, ((F, 0.1), (B, 0.3)), 0.0)
    assert time_shares(state_after(progress(4, (F, 5.0), (OPT, 5.0)), device).phases) == pytest.approx(
        {F: 0.25, B: 0.75}
    )


def test_shares_stay_until_moved_by_twentieth() -> None:
    before = {F: 0.40, B: 0.60}
    assert steady_shares(before, {F: 0.44, B: 0.56}) is before
    assert steady_shares(before, {F: 0.46, B: 0.54}) == {F: 0.46, B: 0.54}
    assert steady_shares({}, before) is before
