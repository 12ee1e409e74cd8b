"""GT601: which parameters train on some ranks only, and what follows from it."""

from __future__ import annotations

import pytest
from jobs import Job
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.findings import Level, Status
from gradtui.run.state.run_state import RunState

RULES = [rule_named(f"GT60{number}") for number in range(1, 7)]


def test_a_parameter_that_is_frozen_on_one_rank() -> None:
    job = Job(3)
    job.check_all(16)
    job.check_all(32, but=1, trainable="10")
    found = match("GT601", job.state)
    assert found.message == (
        "requires_grad of a.bias differs between rank 1 and the other 2 ranks since a step from 17 to 32: "
        "trainable on ranks 0, 2, frozen on rank 1"
    )
    assert (found.paths, found.first_step, found.is_exact, found.level) == (("a.bias",), 32, True, None)
    assert found.evidence == {
        "names": 1,
        "ranks": "1",
        "compared_ranks": 3,
        "equal_step": 16,
        "first_step": 32,
        "last_step": 32,
    }


def test_once_it_is_over_it_is_none() -> None:
    job = Job(2)
    job.check_all(16, but=1, trainable="10")
    job.check_all(32)
    assert matches("GT601", job.state) == []


def test_ranks_that_may_train_models_of_their_own_are_noted() -> None:
    job = Job(2)
    for rank, flags in ((0, "11"), (1, "10")):
        job.check(rank, 16, trainable=flags, checksums=(None, None))
    assert match("GT601", job.state).level is Level.NOTE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_a_run_lacks(rule: object) -> None:
    needs = rule.needs  # type: ignore[attr-defined]
    assert needs(run()) == "the run is one process"
    assert needs(Job(1).state) == "the run is one process"
    job = Job(2)
    assert needs(job.state) == "no step was compared between ranks"
    job.check_all(1)
    assert needs(job.state) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_one_process_and_equal_ranks_match_nothing(rule: object) -> None:
    job = Job(2)
    for step in (1, 16):
        job.check_all(step)
    for rank in range(2):
        job.end(rank, 20)
    check = rule.check  # type: ignore[attr-defined]
    assert [*check(job.state), *check(run()), *check(RunState())] == []


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


def test_the_rules_run_when_ranks_are_found_to_differ_and_when_that_is_over() -> None:
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
