"""The record that the viewer of a job keeps of each rank, and the state of the run, which is that of the shown rank."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.events import rank_joined
from helpers.jobs import Job, model

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.parts.job import NORMS_KEPT


def run_notes(job: Job) -> list[str]:
    return [entry.text for entry in job.state.log if entry.kind == "run"]


def test_ranks_join_in_any_order() -> None:
    job = Job(3, joined=(2, 0, 1))
    assert (job.job.size, job.job.shown, sorted(job.job.ranks)) == (3, 0, [0, 1, 2])
    assert run_notes(job) == ["all 3 ranks have joined"]
    assert [record.pid for record in job.job.live] == [100, 101, 102]


def test_state_of_run_is_that_of_lowest_rank() -> None:
    job = Job(2, joined=(1,))
    job.progress(1, 7)
    assert (job.state.step, job.job.shown) == (7, 1)
    command = SetTrainable(1, "a", False)
    job.state.note_submitted(command)
    job.join(0)
    assert (job.state.step, job.job.shown) == (0, 0)
    # What the user has requested waits for its answer still.
    assert job.state.pending == {1: command}
    job.progress(0, 5)
    job.progress(1, 9)
    assert (job.state.step, job.job.ranks[0].step, job.job.ranks[1].step) == (5, 5, 9)
    assert len(job.state.tree.parameters) == 2


def test_unknown_and_former_ranks_are_ignored() -> None:
    job = Job(2)
    job.progress(3, 9)
    assert sorted(job.job.ranks) == [0, 1]
    job.restart()
    for rank in (0, 1):
        job.progress(rank, 3)
    late = ev.RankEvent(2.0, 90, 1, 0, ev.Progress(2.0, 90, 1, 1, 0, (1,), (), 0.0, 1, 1))
    apply(job.state, late)
    apply(job.state, ev.RankLeft(2.0, 90, 1, 0, "its process is gone"))
    apply(job.state, rank_joined(1, at=2.0, pid=5))
    record = job.job.ranks[1]
    assert (record.step, record.is_connected, record.generation, record.pid) == (3, True, 1, 101)


def test_a_restart_keeps_the_former_records() -> None:
    job = Job(2)
    job.progress(0, 40)
    job.progress(1, 41)
    job.leave(1, "its process is gone")
    job.restart()
    assert [(each.rank, each.generation, each.step) for each in job.job.former] == [(0, 0, 40), (1, 0, 41)]
    assert (job.job.generation, job.state.step, job.job.shown) == (1, 0, 0)
    assert run_notes(job) == ["all 2 ranks have joined"] * 2
    assert job.texts == ["rank 1: its process is gone", "the ranks were started again (generation 1)"]


def test_silence_and_its_end_are_said_once() -> None:
    job = Job(2)
    job.progress(1, 40, at=2.0)
    for at in (3.0, 4.0, 5.0, 6.0):
        apply(job.state, ev.RanksHeard(at, 40, ((0, 0.1), (1, at - 2.0))))
    assert job.texts == ["rank 1 is silent: stopped, or out of reach"]
    job.progress(1, 41, at=9.5)
    job.progress(1, 42, at=9.6)
    assert job.texts[1:] == ["rank 1 is heard from again, after 7.5 s"]


def test_failure_is_said_when_rank_reports_it() -> None:
    job = Job(2)
    job.end(1, 7, 1, "Traceback\n  x\nValueError: no\n")
    job.end(0, 7, 3)
    assert job.texts == ["rank 1 failed: ValueError: no", "rank 0 failed with exit code 3"]


def test_a_restart_with_fewer_ranks() -> None:
    job = Job(4)
    job.size = 2
    job.restart()
    assert (job.job.size, sorted(job.job.ranks)) == (2, [0, 1])


def test_a_rank_that_joins_again_begins_anew() -> None:
    job = Job(2)
    job.progress(1, 9)
    job.leave(1, "the connection is lost")
    job.join(1)
    assert (job.job.ranks[1].step, job.job.ranks[1].is_connected) == (0, True)
    assert run_notes(job).count("all 2 ranks have joined") == 1


def test_what_is_kept_of_a_rank() -> None:
    job = Job(2)
    group = ev.ProcessGroupFound(1.0, 0, 1, 2, "gloo")
    held = MemoryBytes(1, 2, 3, 4, 5, 6, 21)
    memory = ev.MemoryMeasured(1.0, 3, Phase.FORWARD, held, None, False, True)
    device = ev.DeviceSampled(1.0, 3, "psutil", 10, 20, *(None,) * 6)
    job.event(1, memory)
    job.event(1, device)
    job.event(1, group)
    job.event(1, ev.PhaseSampled(2.0, 3, Phase.BACKWARD))
    job.event(1, ev.PauseChanged(2.0, 3, True))
    job.progress(1, 4, steps=2, at=2.0, forward=0.02, backward=0.06)
    job.norms(1, 4, 3.0, 4.0)
    record = job.job.ranks[1]
    assert (record.memory, record.device) == ({Phase.FORWARD: memory}, device)
    assert (record.backend, record.phase, record.paused, record.micro_steps) == ("gloo", Phase.BACKWARD, True, 2)
    assert record.steps_per_second == pytest.approx(25)
    assert record.phase_seconds == pytest.approx({Phase.FORWARD: 0.01, Phase.BACKWARD: 0.03})
    assert (record.norm, record.loss) == (5.0, 0.5)
    # The rank that is shown is another one.
    assert (job.state.phase, job.state.paused, job.state.process_group) == (Phase.LOAD, False, None)
    job.event(0, replace(group, rank=0))
    assert job.state.process_group is not None


def test_a_step_rate_needs_time_and_steps() -> None:
    job = Job(1)
    job.progress(0, 0, steps=0, load=3.0)
    job.progress(0, 1, steps=1)
    assert job.job.ranks[0].steps_per_second is None


def test_norms_are_kept_from_newest_common_step_on() -> None:
    job = Job(2)
    for step in (1, 2, 3):
        job.norms(0, step, 1.0, 1.0)
    job.norms(1, 2, 1.0, 1.0)
    assert [step for step, _ in job.job.ranks[0].norms] == [2, 3]
    assert [step for step, _ in job.job.ranks[1].norms] == [2]


def test_seldom_measured_norms_meet_far_ahead_ones() -> None:
    job = Job(2)
    for step in range(1, 1001):
        job.norms(0, step, float(step), 1.0)
    assert len(job.job.ranks[0].norms) == NORMS_KEPT
    job.norms(1, 256, 1.0, 1.0)
    shared = {step for step, _ in job.job.ranks[0].norms} & {step for step, _ in job.job.ranks[1].norms}
    assert shared == {256}


def test_norms_without_rows_and_of_other_listing() -> None:
    job = Job(2)
    job.event(0, ev.GradientsMeasured(1.0, 1, 5.0, None, None, listing=1))
    job.event(0, ev.GradientsMeasured(1.0, 2, 6.0, None, (1.0, 2.0), listing=0))
    record = job.job.ranks[0]
    assert (record.norm, record.norms) == (6.0, [])
    job.norms(0, 3, 1.0, 1.0)
    job.event(0, replace(model("a.weight"), listing=2))
    assert record.norms == []


def test_end_of_rank_is_not_that_of_run() -> None:
    job = Job(2)
    job.end(0, 50)
    assert job.state.ended is None
    assert (job.job.ranks[0].step, [each.rank for each in job.job.live]) == (50, [1])


def test_when_ranks_were_heard_from() -> None:
    job = Job(2)
    apply(job.state, ev.RanksHeard(8.0, 5, ((0, 0.5), (1, 6.0), (7, 1.0))))
    first, second = (job.job.ranks[rank] for rank in (0, 1))
    assert (first.seconds_silent(8.0), second.seconds_silent(8.0)) == (0.5, 6.0)
    job.progress(1, 6, at=8.5)
    assert second.seconds_silent(job.job.now) == 0.0


def test_partial_success_of_ranks_is_said_once() -> None:
    job = Job(3)
    command = SetTrainable(7, "a", False)
    apply(job.state, ev.CommandProposed(1.0, 5, 99, command, 8))
    job.event(0, ev.CommandApplied(1.0, 8, command, "froze a", ()))
    assert job.texts == []
    job.event(1, ev.CommandRejected(1.0, 8, command, "it failed"))
    job.event(2, ev.CommandApplied(1.0, 8, command, "froze a", ()))
    assert job.texts == ["the ranks differ: rank 0 did what rank 1 could not after all (freeze a): it failed"]


def test_what_no_rank_could_do_is_no_difference() -> None:
    job = Job(2)
    command = SetTrainable(7, "a", False)
    apply(job.state, ev.CommandProposed(1.0, 5, 99, command, 8))
    for rank in range(2):
        job.event(rank, ev.CommandRejected(1.0, 8, command, "a is already frozen"))
    assert job.texts == []
