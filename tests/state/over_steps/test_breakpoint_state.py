"""Breakpoints that only the viewer can see reached, and what the state shows of all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.metric_events import metrics_logged

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Pause, RunTo, SetBreakpoint
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.run.state.over_steps.breakpoints import Reached, is_met, reached
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import next_stop
from gradtui.run.text.breakpoints import reached_text

GIB = 2**30
MEASURED = ev.MemoryMeasured(
    1.0, 41, Phase.BACKWARD, MemoryBytes(0, 0, 0, 0, 0, 2 * GIB, total=2 * GIB), 3 * GIB, True, True, ()
)
FOUND = Finding("GT203", Level.ERROR, Status.CONFIRMED, "a", "b", "c", 1, 2)


def with_breakpoints(*commands: SetBreakpoint) -> RunState:
    state = RunState()
    for command in commands:
        state.note_submitted(command)
        apply(state, ev.CommandApplied(1.0, 3, command, "pauses", ()))
    return state


@pytest.mark.parametrize(("value", "above", "below"), [(2.0, False, True), (3.0, False, False), (4.0, True, False)])
def test_above_and_below_are_strict(value: float, above: bool, below: bool) -> None:
    assert is_met(SetBreakpoint(1, "loss", 3.0), value) is above
    assert is_met(SetBreakpoint(1, "loss", 3.0, above=False), value) is below


def test_memory_and_its_peak() -> None:
    total, peak = SetBreakpoint(1, "memory", 1.0 * GIB), SetBreakpoint(2, "peak", 2.5 * GIB)
    never = SetBreakpoint(3, "peak", 3.0 * GIB)
    state = with_breakpoints(total, peak, never)
    found = list(reached(state, MEASURED, state.findings))
    assert found == [Reached(total, 2 * GIB, 41), Reached(peak, 3 * GIB, 41)]
    assert reached_text(*found[1]) == "memory peak 3.0 GiB > 2.5 GiB at step 41"


def test_the_totals_of_every_step_reach_them_too() -> None:
    """The first step that is above, of all that came together; not one that was sampled."""
    peak, memory = SetBreakpoint(1, "peak", 2.5 * GIB), SetBreakpoint(2, "memory", 1.5 * GIB)
    never = SetBreakpoint(3, "peak", 9.0 * GIB)
    below = SetBreakpoint(4, "peak", 1.5 * GIB, above=False)
    state = with_breakpoints(peak, memory, never, below)
    peaks = {41: 2 * GIB, 42: 3 * GIB, 43: 4 * GIB, 44: 1 * GIB}
    ends = {41: (1 * GIB, 1 * GIB), 42: (1 * GIB, 1 * GIB), 43: (1 * GIB, 7 * GIB // 4), 44: (3 * GIB, 1 * GIB)}
    totals = tuple(ev.StepTotals(step, ends[step][0], None, ends[step][1], size) for step, size in peaks.items())
    event = ev.StepMemoryMeasured(2.0, 44, (*totals, ev.StepTotals(45, None, None, None, None)))
    apply(state, event)
    found = list(reached(state, event, state.findings))
    assert found == [Reached(peak, 3 * GIB, 42), Reached(memory, 7 * GIB // 4, 43), Reached(below, 1 * GIB, 44)]


def test_memory_is_compared_as_the_screen_counts_it() -> None:
    """Without what no category explains before training, such as imports and data."""
    state = with_breakpoints(SetBreakpoint(1, "memory", 1.5 * GIB), SetBreakpoint(2, "peak", 2.5 * GIB))
    apply(state, ev.MemoryMeasured(0.5, 0, Phase.LOAD, MemoryBytes(0, 0, 0, 0, 0, GIB, total=GIB), GIB, True, True))
    totals = ev.StepTotals(41, 2 * GIB, None, None, 3 * GIB)
    for event in (MEASURED, ev.StepMemoryMeasured(1.0, 41, (totals,))):
        apply(state, event)
        assert not list(reached(state, event, state.findings))
    more = ev.StepMemoryMeasured(1.1, 42, (ev.StepTotals(42, 3 * GIB, None, None, 4 * GIB),))
    apply(state, more)
    assert [each.value for each in reached(state, more, state.findings)] == [2 * GIB, 3 * GIB]


def test_requested_breakpoint_is_not_requested_again() -> None:
    state = with_breakpoints(SetBreakpoint(1, "memory", 1.0 * GIB))
    state.note_submitted(Pause(9, "memory", 1))
    assert not list(reached(state, MEASURED, state.findings))


@pytest.mark.parametrize(("rule", "is_reached"), [("", True), ("GT203", True), ("GT101", False)])
def test_a_finding_that_becomes_confirmed(rule: str, is_reached: bool) -> None:
    state = with_breakpoints(SetBreakpoint(1, "finding", rule=rule))
    state.findings = [FOUND]
    event = ev.Event(1.0, 41)
    found = list(reached(state, event, [replace(FOUND, status=Status.SUSPECTED)]))
    assert [reached_text(*each) for each in found] == ["finding GT203 at step 41"] * is_reached
    assert not list(reached(state, event, [FOUND])), "it was confirmed before"
    state.findings = [replace(FOUND, status=Status.SUSPECTED)]
    assert not list(reached(state, event, []))


def test_state_shows_settings_and_reason_of_pause() -> None:
    state = with_breakpoints(SetBreakpoint(1, "step", 50), SetBreakpoint(2, "loss", 3.0))
    assert list(state.breakpoints) == [1, 2]
    assert next_stop(state) == 50
    apply(state, ev.CommandApplied(1.0, 3, RunTo(3, 20), "run to step 20", ()))
    assert next_stop(state) == 20
    apply(state, ev.PauseChanged(2.0, 12, True, "loss 4 > 3 at step 12", (2,)))
    assert (state.paused, state.pause_reason, list(state.breakpoints)) == (True, "loss 4 > 3 at step 12", [1])
    assert state.log[-1].text == "paused: loss 4 > 3 at step 12"
    assert next_stop(state) == 50
    apply(state, ev.PauseChanged(3.0, 12, False))
    assert (state.paused, state.pause_reason) == (False, "")


def test_a_metric_that_the_script_logs() -> None:
    above = SetBreakpoint(1, "logged", 0.65, name="val/accuracy")
    never, other = SetBreakpoint(2, "logged", 0.9, name="val/accuracy"), SetBreakpoint(3, "logged", 0.0, name="gone")
    state, event = with_breakpoints(above, never, other), metrics_logged()
    apply(state, event)
    (found,) = reached(state, event, state.findings)
    assert found == Reached(above, 0.7, 20)
    assert reached_text(*found) == "val/accuracy 0.7 > 0.65 at step 20"
    again = metrics_logged({"val/accuracy": {31: 0.8}}, "mlflow")
    apply(state, again)
    assert not [*reached(state, again, state.findings)], "a second logger of the same metric does not count"
