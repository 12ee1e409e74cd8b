"""The verdict on a loop in words, and what is said of its device and host."""

from __future__ import annotations

import pytest
from helpers.timed_runs import (
    FAST,
    FINE,
    HOST,
    HOT,
    OWN,
    SLOW,
    SMALL,
    on_host,
    sampled,
    timed_ranks,
    with_code_between,
    with_operations,
)
from helpers.timed_steps import counted, times

from gradtui.run.state.run_state import RunState
from gradtui.run.text.device_load import cores_words, load_words
from gradtui.run.text.step_times import time_verdict

LEARNS = times(forward=8, backward=8, optimizer=0.5, other=0.5)
READ = counted(other=20, reads=1, waited=12)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            with_operations(SMALL, counted(forward=1_200, graph=900)),
            "host-bound: 89 % of the loop starts small operations, 2,100 a step",
        ),
        (
            with_operations(OWN, counted(other=3_000, reads=1_000)),
            "stalled by reads of values: 90 % of the loop…",
        ),
        (with_operations(OWN, READ, 0.4), "stalled by reads of values: 60 % of the loop waits at 1 read a step…"),
        (with_operations(OWN, READ, 0.95), "compute-bound: the device computes 95 % of the time"),
        (
            with_operations(LEARNS, counted(forward=100, graph=90), 0.4),
            "host-bound: the device is idle 60 % of the time; forward and backward take 94 % of the loop on the host",
        ),
        (
            with_operations(LEARNS, counted(forward=100, graph=90), 0.9),
            "compute-bound: the device computes 90 % of the time",
        ),
        (
            timed_ranks(FAST, SLOW, FAST),
            "rank 1 makes the others wait: 56 % of each step, for data wait",
        ),
        (on_host(HOST, threads=1), "…of the loop, on 1 thread of 16 cores"),
        (on_host(HOST, threads=8), "…of the loop"),
    ],
)
def test_verdict(state: RunState, words: str) -> None:
    """An ellipsis stands for any words."""
    said, (begin, _, end) = time_verdict(state), words.partition("…")
    assert said == words if "…" not in words else said.startswith(begin) and said.endswith(end)


def test_code_between_operations_has_the_verdict() -> None:
    state = with_code_between()
    assert time_verdict(state) == "42 % of the loop is the script's own code between operations of the forward"


def test_words_of_device_and_host() -> None:
    assert load_words(sampled(*[HOT] * 12, *[FINE] * 8).device_load) == (
        "busy 90 % of the time, at most 87 °C, 447 of 700 W, slowed down by heat 60 % of it"
    )
    assert cores_words(on_host(HOST, threads=8)) == "1.0 of 16 cores, 8 threads of torch"
