"""The curves of memory over steps."""

from __future__ import annotations

import pytest
from helpers.fakes import MIB
from helpers.step_memory import BEFORE, state, totals

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.memory.memory_over_steps import PEAK, TOTAL, memory_over_steps
from gradtui.run.state.run_state import RunState


def test_peak_lies_on_end_of_step() -> None:
    held, peak = memory_over_steps(state(60, {40: 64 * MIB}))
    assert (held.name, held.phase) == (TOTAL, Phase.OPTIMIZER)
    assert (peak.name, peak.phase) == (PEAK, None)
    assert list(held.steps) == list(peak.steps) == list(range(1, 61))
    assert set(held.values) == {80 * MIB - BEFORE}
    assert peak.values[39] == (totals(40, 64 * MIB).peak or 0) - BEFORE


@pytest.mark.parametrize("phases", [(Phase.BACKWARD,), (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)])
def test_chosen_phases_have_the_totals_at_their_ends(phases: tuple[Phase, ...]) -> None:
    *curves, peak = memory_over_steps(state(60), phases)
    assert [curve.phase for curve in curves] == list(phases)
    assert [curve.name for curve in curves] == [phase.value for phase in phases]
    assert [curve.values[-1] for curve in curves] == [getattr(totals(60), phase.value) - BEFORE for phase in phases]
    assert peak.name == PEAK


def test_without_optimizer_phase_step_ends_with_backward() -> None:
    run = RunState()
    apply(run, ev.StepMemoryMeasured(1.0, 1, (ev.StepTotals(1, 7, 5, None, 7),)))
    assert [(curve.name, curve.phase, list(curve.values)) for curve in memory_over_steps(run)] == [
        (TOTAL, Phase.BACKWARD, [5]),
        (PEAK, None, [7]),
    ]


def test_curve_is_empty_then_point() -> None:
    assert memory_over_steps(RunState()) == []
    apply(run := RunState(), ev.StepMemoryMeasured(1.0, 1, (ev.StepTotals(1, 7, 5, 3, 7),)))
    assert [list(curve.values) for curve in memory_over_steps(run)] == [[3], [7]]


def test_long_run_keeps_bounded_steps_and_spikes() -> None:
    run = RunState()
    for start in range(1, 20_001, 1_000):
        steps = range(start, start + 1_000)
        apply(
            run,
            ev.StepMemoryMeasured(
                1.0, steps[-1], tuple(ev.StepTotals(s, 7, 5, 3, 99 if s == 1_234 else 7) for s in steps)
            ),
        )
    held, peak = memory_over_steps(run)
    assert max(len(held.steps), len(peak.steps)) <= 2_048
    assert peak.values[list(peak.steps).index(1_234)] == 99
    assert peak.steps[-1] == 20_000
