"""GT702 and GT703: what the host spends on starting operations, and on waiting for the values that it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import device_sample
from scripted_run import match, matches, run
from timed_steps import counted, times

from gradtui.protocol import events as ev
from gradtui.protocol.step_operations import OperationsCounted
from gradtui.protocol.step_times import StepPart, StepTimesMeasured
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.step_times import time_verdict

SMALL = times(forward=8, backward=8, optimizer=1, other=1, steps=200, unsampled=180)
OWN = times(forward=1, backward=1, other=18, steps=200, unsampled=180)


def state_of(measured: StepTimesMeasured, operations: OperationsCounted, utilisation: float | None = None) -> RunState:
    state = run()
    apply(state, measured)
    apply(state, operations)
    for second in range(5 if utilisation is not None else 0):
        apply(state, replace(device_sample(10.0 + second), utilisation=utilisation, index=0))
    return state


def test_a_model_that_starts_many_operations() -> None:
    state = state_of(SMALL, counted(forward=1_200, graph=900))
    one = match("GT703", state)
    assert one.message == (
        "89 % of the loop (3.2 s of 3.6 s) goes to starting small operations: 2,100 a step, about 7.6 µs each"
    )
    assert one.explains == frozenset()
    assert matches("GT702", state) == []
    assert time_verdict(state) == "host-bound: 89 % of the loop starts small operations, 2,100 a step"


def test_an_agent_that_acts_on_what_it_reads_is_a_note() -> None:
    """A model that is called 60 times a step with a read of its result each time; and one whose samples come one by one."""
    operations = counted(steps=4, forward=1_200, graph=900)
    acts = replace(operations, calls=4 * 60, reads_of_results=4 * 60)
    one = match("GT703", state_of(SMALL, acts))
    assert one.message.endswith("each, in 60 calls of models with a read of a value after each")
    assert one.level is Level.NOTE
    assert "several environments" in (one.remedy or "")
    assert match("GT703", state_of(SMALL, replace(operations, calls=4 * 60))).level is None


def test_code_between_operations_is_not_theirs() -> None:
    """Of eight milliseconds of forward, an environment takes five: the operations and backward are no half of the loop."""
    operations = counted(forward=600, graph=400)
    slow = tuple(
        replace(each, between_seconds=each.small_seconds * 5 / 3) if each.part is StepPart.FORWARD else each
        for each in operations.parts
    )
    measured = times(forward=8, backward=2, optimizer=1, other=1, steps=200, unsampled=180)
    assert match("GT703", state_of(measured, operations))
    state = state_of(measured, replace(operations, parts=slow))
    assert matches("GT703", state) == []
    words = "42 % of the loop is the script's own code between operations of the forward"
    assert time_verdict(state) == words
    assert match("GT710", state).message.startswith(
        "42 % of the loop (1.0 s of 2.4 s) is the script's own code between"
    )


def test_own_code_of_many_operations_explains_that_it_is_long() -> None:
    assert match("GT703", state_of(OWN, counted(other=4_000))).explains == {"GT710"}


def test_own_code_that_reads_value_by_value() -> None:
    state = state_of(OWN, counted(other=3_000, reads=1_000))
    one = match("GT702", state)
    assert "reads values one by one: 1,000 reads a step, at train.py:41 (total += loss.item())" in one.message
    assert ".tolist()" in (one.remedy or "")
    assert matches("GT703", state) == []
    assert time_verdict(state).startswith("stalled by reads of values: 90 % of the loop")


@pytest.mark.parametrize(
    ("measured", "operations"),
    [
        (SMALL, counted(forward=200, graph=150)),
        (OWN, counted(other=40, reads=1)),
        # Python code that takes long, and long operations, are not the operations' time.
        (OWN, counted(other=200, reads=1)),
        (OWN, counted(other=2_000, large=60)),
        (replace(SMALL, steps=5, unsampled_steps=5), counted(forward=1_200, graph=900)),
        (SMALL, counted(steps=0, forward=1_200)),
    ],
)
def test_a_loop_whose_operations_are_few_or_long(measured: StepTimesMeasured, operations: OperationsCounted) -> None:
    state = state_of(measured, operations) if operations.steps else run()
    assert matches("GT702", state) == matches("GT703", state) == []


def test_a_device_that_computes_meanwhile_is_not_held_up() -> None:
    operations = counted(forward=1_200, graph=900)
    assert matches("GT703", state_of(SMALL, operations, 0.9)) == []
    assert match("GT703", state_of(SMALL, operations, 0.3))


def test_a_read_that_waits_for_an_idle_device() -> None:
    operations = counted(other=20, reads=1, waited=12)
    state = state_of(OWN, operations, 0.4)
    assert "waits for the device at 1 read a step, at train.py:41" in match("GT702", state).message
    assert time_verdict(state).startswith("stalled by reads of values: 60 % of the loop waits at 1 read a step")
    assert matches("GT702", state_of(OWN, operations, 0.95)) == []
    assert matches("GT702", state_of(OWN, counted(other=20, reads=1, waited=0.1), 0.4)) == []


def test_without_counts_no_rule_had_a_chance() -> None:
    state = run()
    apply(state, SMALL)
    assert {rule_named(rule).needs(state) for rule in ("GT702", "GT703")} == {"the operations of no step were counted"}


def test_a_device_that_waits_for_the_host_where_nvml_tells_nothing() -> None:
    operations = counted(forward=1_200, graph=900)
    for idle_ends, expected in ((11, True), (3, False)):
        state = state_of(SMALL, operations)
        apply(state, replace(device_sample(), utilisation=None, index=0))
        apply(state, ev.DeviceTimesMeasured(1.0, 4, (), 0.0, 12, idle_ends))
        assert bool(matches("GT703", state)) is expected


@pytest.mark.parametrize(
    ("utilisation", "expected"),
    [
        (
            0.4,
            "host-bound: the device is idle 60 % of the time; forward and backward take 94 % of the loop on the host",
        ),
        (0.9, "compute-bound: the device computes 90 % of the time"),
    ],
)
def test_the_verdict_on_a_device(utilisation: float, expected: str) -> None:
    measured = times(forward=8, backward=8, optimizer=0.5, other=0.5)
    assert time_verdict(state_of(measured, counted(forward=100, graph=90), utilisation)) == expected


def test_own_code_that_waits_for_a_busy_device_is_none_of_its_own() -> None:
    state = state_of(OWN, counted(other=20, reads=1, waited=12), 0.95)
    assert matches("GT710", state) == []
    assert time_verdict(state) == "compute-bound: the device computes 95 % of the time"
