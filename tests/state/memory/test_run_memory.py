"""One figure of the memory for the whole screen: now, at the peak of the run, by phase."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import MIB, coop_run, held, started
from helpers.states import state_after
from helpers.step_memory import BEFORE, events, state, totals

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.memory.run_memory import (
    above_load,
    highest_peak,
    largest_spike,
    memory_now,
    memory_step,
    phase_peak,
    phase_total,
    run_peak,
)
from gradtui.run.state.run_state import RunState


def test_nothing_is_known_at_first() -> None:
    empty = RunState()
    known = (memory_now(empty), memory_step(empty), run_peak(empty), highest_peak(empty), largest_spike(empty))
    assert known == (None,) * 5
    assert phase_total(empty, Phase.FORWARD) is None
    assert phase_peak(empty, Phase.FORWARD) is None


def test_the_highest_peak_is_over_all_phases() -> None:
    run = state_after(*coop_run(5))
    found = highest_peak(run)
    assert found is not None
    peaks = [event.peak for event in coop_run(5) if isinstance(event, ev.MemoryMeasured) and event.peak is not None]
    assert found[1].peak == max(peaks)


def test_peak_has_step_and_phase_without_earlier() -> None:
    run = state(60, {20: 300 * MIB, 40: 200 * MIB})
    peak = run_peak(run)
    assert peak is not None
    expected = (totals(20, 300 * MIB).peak or 0) - BEFORE
    assert (peak.bytes, peak.step, peak.phase, peak.bound == "exact") == (expected, 20, Phase.FORWARD, False)
    largest = largest_spike(run)
    assert largest is not None
    assert above_load(run, largest.peak) == peak.bytes


def test_allocator_peak_of_every_step_is_exact() -> None:
    peak = run_peak(state(60, exact=True))
    assert peak is not None
    assert peak.bound == "exact"
    later = state(60, exact=True)
    # One step without makes it a lower bound: that step may have been higher.
    apply(later, ev.StepMemoryMeasured(7.0, 61, (totals(61),)))
    peak = run_peak(later)
    assert peak is not None
    assert peak.bound == "at least"


@pytest.mark.parametrize("sampled", [False, True], ids=["of a step", "of a sampled step"])
def test_peak_equal_to_total_is_exact(sampled: bool) -> None:
    run = RunState()
    one = ev.StepTotals(1, 100 * MIB, 90 * MIB, 80 * MIB, 100 * MIB, peak_exact=True)
    apply(run, ev.StepMemoryMeasured(1.0, 1, (replace(one, peak_exact=not sampled),)))
    if sampled:
        apply(run, ev.MemoryMeasured(1.1, 1, Phase.FORWARD, held(MIB, 0, 0, None), 100 * MIB, True, True))
    record = run.phases[Phase.FORWARD]
    assert (record.peak, record.peak_step, record.peak_bound == "exact") == (100 * MIB, 1, True)
    assert run.phases[Phase.BACKWARD].peak_bound == "at least"
    # As high as an exact one, and not known to be the highest of its step.
    apply(run, ev.StepMemoryMeasured(1.2, 2, (ev.StepTotals(2, 100 * MIB, 90 * MIB, 80 * MIB, 100 * MIB),)))
    assert run_peak(run).bound == "at least"  # type: ignore[union-attr]


def test_newest_totals_are_those_of_newest_step() -> None:
    run = state(60)
    newest = totals(60)
    assert memory_step(run) == 60
    assert memory_now(run) == (newest.optimizer or 0) - BEFORE
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        total = phase_total(run, phase)
        assert total is not None
        assert (total.bytes, total.step) == (getattr(newest, phase) - BEFORE, 60)
    peak = phase_peak(run, Phase.FORWARD)
    assert peak == (max(totals(step).forward or 0 for step in range(1, 61)) - BEFORE, "at least")


def test_breakdown_of_later_step_is_newer_than_totals() -> None:
    run = state(60)
    later = held(26 * MIB, 0, 0, 0)
    apply(run, ev.MemoryMeasured(9.0, 61, Phase.FORWARD, later, None, True, True))
    total = phase_total(run, Phase.FORWARD)
    assert total is not None
    assert (total.bytes, total.step) == ((later.total or 0) - BEFORE, 61)
    assert memory_step(run) == 61


@pytest.mark.parametrize("first", [5, 20])
def test_models_of_peak_are_forgotten_with_it(first: int) -> None:
    run = RunState()
    small = held(26 * MIB, 0, 0, 0)
    apply(run, ev.MemoryMeasured(1.0, first, Phase.FORWARD, small, 40 * MIB, True, True, (1, 2)))
    record = run.phases[Phase.FORWARD]
    assert (record.peak_step, record.peak_models) == (first, (1, 2))
    apply(run, ev.StepMemoryMeasured(2.0, 30, (totals(30),)))
    assert (record.peak, record.peak_step, record.peak_models) == (totals(30).forward, 30, ())


def test_another_device_starts_again() -> None:
    run = state_after(started(), *events(20)[1:], ev.DeviceFound(9.0, 20, "cuda:0", "CUDA"))
    assert run_peak(run) is None
    assert run.phases[Phase.FORWARD].peak_step == 0
    assert run.step_memory.peaks_exact


def test_import_leftovers_are_subtracted_while_held() -> None:
    """8 MiB in no category at the first forward, of which 3 MiB are freed before the first step ends."""
    state = RunState()
    apply(
        state, ev.MemoryMeasured(0.1, 0, Phase.LOAD, MemoryBytes(0, 0, 0, 0, 0, 8 * MIB, 8 * MIB), 8 * MIB, True, True)
    )
    assert (state.held_since_load, memory_now(state)) == (8 * MIB, 0)
    held = MemoryBytes(MIB, 0, 0, 0, 0, 5 * MIB, 6 * MIB)
    apply(state, ev.MemoryMeasured(1.0, 1, Phase.OPTIMIZER, held, 7 * MIB, True, True))
    assert (state.held_since_load, memory_now(state)) == (5 * MIB, MIB)
