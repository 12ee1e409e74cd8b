"""What a tracker makes of the rules of ranks: what explains what, when they run, and what is over."""

from __future__ import annotations

import pytest
from helpers.jobs import Job

from gradtui.protocol import events as ev
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.findings import Status

RULES = [rule_named(f"GT60{number}") for number in range(1, 7)]


def findings(job: Job, *events: ev.Event) -> list[tuple[str, tuple[str, ...]]]:
    tracker = FindingTracker(RULES)
    for event in events:
        tracker.on_event(job.state, event)
    assert all(each.status is Status.CONFIRMED for each in job.state.findings)
    return [(each.rule, each.explains) for each in job.state.findings if each.is_open]


def test_it_explains_what_follows_from_it() -> None:
    job = Job(2)
    job.check(0, 16)
    event = job.check(1, 16, trainable="10", owned="10", checksums=(160, 0))
    assert findings(job, event) == [("GT601", ("GT602", "GT604"))]


def test_it_does_not_explain_other_parameters() -> None:
    job = Job(2)
    job.check(0, 16)
    event = job.check(1, 16, trainable="10", checksums=(0, 161))
    assert findings(job, event) == [("GT601", ()), ("GT604", ())]


def test_rules_run_when_ranks_differ_and_agree_again() -> None:
    job, tracker = Job(2), FindingTracker(RULES)
    ran = []
    for step, flags in ((16, "11"), (32, "10"), (48, "10"), (64, "11")):
        for rank in range(2):
            event = job.check(rank, step, trainable=flags if rank == 1 else "11")
            ran.append(tracker.on_event(job.state, event))
    assert ran == [False, False, False, True, False, False, False, True]
    (found,) = job.state.findings
    assert (found.rule, found.first_step, found.last_step, found.cleared_step) == ("GT601", 32, 32, 64)


def test_the_rules_run_when_any_rank_ends() -> None:
    job, tracker = Job(2), FindingTracker(RULES)
    assert tracker.on_event(job.state, job.end(1, 20))
    assert tracker.on_event(job.state, job.end(0, 30))
    assert [each.rule for each in job.state.findings] == ["GT605"]


def test_findings_of_a_former_generation_are_over() -> None:
    job, tracker = Job(2), FindingTracker(RULES)
    job.check(0, 16)
    tracker.on_event(job.state, job.check(1, 16, owned="10"))
    job.restart()
    job.check(0, 1)
    tracker.on_event(job.state, job.check(1, 1))
    (found,) = job.state.findings
    assert not found.is_open


def test_a_group_that_one_rank_lacks_is_explained() -> None:
    job = Job(2)
    job.check_all(1, but=1, owned="10", rates=((0.1, 0.2),), checksums=(10, 0))
    FindingTracker().run(job.state)
    assert [(each.rule, each.explains) for each in job.state.findings] == [("GT602", ("GT603", "GT604"))]


@pytest.mark.parametrize(("rates", "values", "expected"), [(16, 32, ["GT603"]), (32, 16, ["GT603", "GT604"])])
def test_values_that_differ_later_follow_from_it(rates: int, values: int, expected: list[str]) -> None:
    job = Job(2)
    for step in (16, 32):
        job.check(0, step)
        wrong = {"checksums": (0, 0)} if step >= values else {}
        job.check(1, step, **wrong, rates=((0.2,),) if step >= rates else ((0.1,),))
    FindingTracker().run(job.state)
    assert [each.rule for each in job.state.findings] == expected
