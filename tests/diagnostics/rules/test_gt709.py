"""GT709: heat, power, swap space and threads. The samples stand in for a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import device_sample
from scripted_run import match, matches, run
from timed_steps import times

from gradtui.protocol.events import DeviceCondition, HostLoad, Throttling
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.device_load import cores_words, load_words
from gradtui.run.text.step_times import time_verdict

HOT = DeviceCondition(87, 412.0, 700.0, 990, 1_980, (Throttling.HEAT,))
FINE = DeviceCondition(60, 500.0, 700.0, 1_980, 1_980)


def sampled(*conditions: DeviceCondition, utilisation: float = 0.9, host: HostLoad | None = None) -> RunState:
    """A run with a sample each second."""
    state = run()
    for second, condition in enumerate((FINE, *conditions)):
        sample = replace(device_sample(10.0 + second), condition=condition, utilisation=utilisation, host=host, index=0)
        apply(state, sample)
    return state


def test_a_device_that_is_too_hot() -> None:
    state = sampled(*[HOT] * 12, *[FINE] * 8)
    one = match("GT709", state)
    assert one.message == "heat slowed the device down for 12.0 s of 20.0 s, to 50 % of its clock, at 87 °C at most"
    assert "fans" in (one.remedy or "")
    assert load_words(state.device_load) == (
        "busy 90 % of the time, at most 87 °C, 447 of 700 W, slowed down by heat 60 % of it"
    )


@pytest.mark.parametrize(
    ("reason", "level"),
    [(Throttling.POWER_BRAKE, None), (Throttling.SLOWDOWN, None), (Throttling.POWER_CAP, Level.NOTE)],
)
def test_what_else_slows_a_device_down(reason: Throttling, level: Level | None) -> None:
    assert match("GT709", sampled(*[replace(HOT, throttling=(reason,))] * 10)).level is level


@pytest.mark.parametrize(
    "state",
    [
        sampled(*[FINE] * 20),
        sampled(*[HOT] * 3, *[FINE] * 20),
        sampled(*[HOT] * 4),
        # At its power limit under full load, at nearly its full clock.
        sampled(*[replace(FINE, clock=1_800, throttling=(Throttling.POWER_CAP,))] * 20),
        # The clock of a device that computes nothing says nothing.
        sampled(*[HOT] * 20, utilisation=0.0),
    ],
)
def test_a_device_that_is_as_fast_as_it_should_be(state: RunState) -> None:
    assert matches("GT709", state) == []


SWAPPING = HostLoad(0.3, 4, 340.0, 9e6, 1 << 30)


def on_host(host: HostLoad, threads: int = 4) -> RunState:
    state = run()
    apply(state, replace(times(forward=40, backward=60), threads=threads))
    for second in range(10):
        apply(state, replace(device_sample(10.0 + second), condition=None, utilisation=None, host=host, index=None))
    return state


def test_a_process_that_is_swapped_out() -> None:
    assert match("GT709", on_host(SWAPPING)).message == (
        "the process waits for memory that was swapped out: 340 pages a second, with 1.00 GiB of it in swap space"
    )
    # Pages of files that are read for the first time, as of a data set in memory maps.
    assert matches("GT709", on_host(replace(SWAPPING, swapped_in=0.0))) == []


HOST = HostLoad(1.0, 16, 0.0, 0.0, 0)


def test_more_threads_than_cores() -> None:
    assert match("GT709", on_host(HOST, threads=64)).level is Level.NOTE
    assert matches("GT709", on_host(HOST, threads=16)) == []


def test_few_threads_are_a_word_beside_the_verdict() -> None:
    assert time_verdict(on_host(HOST, threads=1)).endswith("of the loop, on 1 thread of 16 cores")
    assert time_verdict(on_host(HOST, threads=8)).endswith("of the loop")
    assert cores_words(on_host(HOST, threads=8)) == "1.0 of 16 cores, 8 threads of torch"


def test_without_samples_the_rule_had_no_chance() -> None:
    assert rule_named("GT709").needs(run()) == "the device was not read while the run trained"
