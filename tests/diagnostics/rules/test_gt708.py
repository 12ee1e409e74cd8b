"""GT708: the rank for which the others wait, by the times of all ranks."""

from __future__ import annotations

from jobs import Job
from scripted_run import match, matches, run
from timed_steps import times

from gradtui.protocol.events import RankEvent
from gradtui.protocol.step_times import StepTimesMeasured
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.text.step_times import time_verdict


def timed(*ranks: StepTimesMeasured, replicas: bool = True) -> RunState:
    state = Job(len(ranks)).state
    assert state.job is not None
    state.job.has_replicas = replicas
    for rank, measured in enumerate(ranks):
        apply(state, RankEvent(1.0, 100, rank, 0, measured))
    return state


FAST = times(wait=1, forward=5, backward=34, other=1)
SLOW = times(wait=24, forward=5, backward=11, other=1)


def test_the_rank_with_slow_data() -> None:
    state = timed(FAST, SLOW, FAST)
    one = match("GT708", state)
    assert one.message == (
        "the other ranks wait for rank 1 (23.0 ms a step, 56 % of it): data wait takes 24.0 ms there and 1.00 ms elsewhere"
    )
    assert time_verdict(state) == "rank 1 makes the others wait: 56 % of each step, for data wait"


def test_a_slow_forward_of_replicas_and_own_code_that_averages_gradients() -> None:
    state = timed(times(forward=30, backward=10), times(forward=10, backward=30))
    assert match("GT708", state).evidence["part"] == "forward"
    waits = timed(times(forward=10, backward=10, other=20), times(forward=10, backward=29, other=1), replicas=False)
    assert match("GT708", waits).evidence["rank"] == 1


def test_equal_ranks_and_those_that_do_not_wait_for_each_other() -> None:
    assert matches("GT708", timed(FAST, FAST)) == []
    assert matches("GT708", timed(times(wait=3, backward=37), times(wait=5, backward=35))) == []
    assert matches("GT708", timed(times(wait=40, backward=10), times(wait=1, backward=10))) == []


def test_without_several_ranks_the_rule_had_no_chance() -> None:
    needs = rule_named("GT708").needs
    assert needs(run()) == "the run is one process"
    assert needs(Job(2).state) == "fewer than ten steps of two ranks were timed"
