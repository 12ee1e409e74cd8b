"""The history of findings: suspected, confirmed, cleared, folded under their cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.scripted_runs import run

from gradtui.protocol import events as ev
from gradtui.protocol.call_order import CallSite
from gradtui.run.diagnostics import FindingTracker, Match, Rule
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState


class Told:
    """A rule that matches what a test tells it to."""

    def __init__(self, name: str, level: Level = Level.ERROR, explains: Iterable[str] = (), samples: int = 3) -> None:
        self.matches: list[Match] = []
        self.rule = Rule(
            name, level, "title", "why", "do this", self._check, explains=frozenset(explains), samples=samples
        )

    def _check(self, _state: RunState) -> Iterator[Match]:
        yield from self.matches


def sample_step(state: RunState, step: int) -> None:
    """Sample a step."""
    apply(state, ev.GradientFlowMeasured(1.0, step, 0, "eee", "ggg", "111", (1, 2, 3), (80,)))


def only_finding(state: RunState) -> Finding:
    (finding,) = state.findings
    return finding


def finding_notes(state: RunState) -> list[str]:
    return [entry.text for entry in state.log if entry.kind == "finding"]


def test_finding_is_confirmed_and_logged_after_three_samples() -> None:
    state, told = run(samples=0), Told("GT901")
    told.matches = [Match("it is wrong", {"number": 1})]
    tracker = FindingTracker([told.rule])
    for step in (1, 2, 3, 4):
        sample_step(state, step)
        tracker.run(state)
        tracker.run(state)
        assert only_finding(state).samples == step
        assert only_finding(state).status is (Status.CONFIRMED if step >= 3 else Status.SUSPECTED)
    assert len(finding_notes(state)) == 1
    assert "it is wrong" in finding_notes(state)[0]


def test_an_exact_match_is_confirmed_at_once() -> None:
    state, told = run(), Told("GT901")
    told.matches = [Match("it is wrong", {}, first_step=7, is_exact=True)]
    FindingTracker([told.rule]).run(state)
    assert only_finding(state).status is Status.CONFIRMED
    assert (only_finding(state).first_step, only_finding(state).last_step, only_finding(state).cleared_step) == (
        7,
        20,
        None,
    )


def test_the_first_step_stays_and_the_message_follows() -> None:
    state, told = run(steps=0), Told("GT901")
    tracker = FindingTracker([told.rule])
    for step in (5, 9):
        told.matches = [Match(f"seen at {step}", {}, is_exact=True)]
        sample_step(state, step)
        tracker.run(state, step)
    assert (only_finding(state).first_step, only_finding(state).last_step, only_finding(state).message) == (
        5,
        9,
        "seen at 9",
    )


def test_cleared_finding_opens_again() -> None:
    state, told = run(), Told("GT901")
    wrong = [Match("it is wrong", {}, is_exact=True)]
    tracker = FindingTracker([told.rule])
    told.matches = wrong
    tracker.run(state)
    told.matches = []
    tracker.run(state)
    assert only_finding(state).is_open, "nothing was sampled since"
    sample_step(state, 21)
    tracker.run(state, 21)
    assert only_finding(state).cleared_step == 21
    sample_step(state, 22)
    tracker.run(state, 22)
    assert only_finding(state).cleared_step == 21, "it records when it was cleared first"
    told.matches = wrong
    tracker.run(state, 23)
    assert only_finding(state).is_open
    assert len(finding_notes(state)) == 2


def test_a_suspicion_that_vanishes_leaves_nothing() -> None:
    state, told = run(), Told("GT901")
    tracker = FindingTracker([told.rule])
    told.matches = [Match("it may be wrong", {})]
    tracker.run(state)
    assert only_finding(state).status is Status.SUSPECTED
    told.matches = []
    tracker.run(state)
    assert state.findings == []
    assert finding_notes(state) == []


def test_a_symptom_is_folded_under_its_cause() -> None:
    state, cause, symptom = run(), Told("GT901", explains=["GT902"]), Told("GT902")
    symptom.matches = [Match("nothing moves", {}, ("a.weight",), is_exact=True)]
    tracker = FindingTracker([symptom.rule, cause.rule])
    tracker.run(state)
    assert only_finding(state).rule == "GT902"
    cause.matches = [Match("no learning rate", {}, is_exact=True)]
    tracker.run(state)
    (open_,) = [finding for finding in state.findings if finding.is_open]
    assert (open_.rule, open_.explains) == ("GT901", ("GT902",))


def test_cause_explains_only_what_concerns_same_parameters() -> None:
    state, cause, symptom = run(), Told("GT901", explains=["GT902"]), Told("GT902")
    cause.matches = [Match("cut off", {}, ("a.weight", "a.bias"), is_exact=True)]
    symptom.matches = [
        Match("no gradient", {}, ("a.bias",), is_exact=True, key="a"),
        Match("no gradient", {}, ("b.bias",), is_exact=True, key="b"),
    ]
    FindingTracker([cause.rule, symptom.rule]).run(state)
    assert {(finding.rule, finding.key) for finding in state.findings} == {("GT901", ""), ("GT902", "b")}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_what_follows_from_symptom_follows_from_its_cause(order: tuple[int, ...]) -> None:
    state = run()
    told = [Told("GT901", explains=["GT902"]), Told("GT902", explains=["GT903"]), Told("GT903")]
    for each, paths in zip(told, (("a.bias",), ("a.bias",), ())):
        each.matches = [Match("it is wrong", {}, paths, is_exact=True)]
    FindingTracker([told[index].rule for index in order]).run(state)
    assert (only_finding(state).rule, only_finding(state).explains) == ("GT901", ("GT902", "GT903"))


def test_rules_explaining_each_other_both_stay() -> None:
    state, first, second = run(), Told("GT901", explains=["GT902"]), Told("GT902", explains=["GT901"])
    first.matches = second.matches = [Match("it is wrong", {}, is_exact=True)]
    FindingTracker([first.rule, second.rule]).run(state)
    assert (only_finding(state).rule, only_finding(state).explains) == ("GT901", ("GT902",))


def test_raising_rule_is_problem_and_others_run() -> None:
    def fails(_state: RunState) -> Iterator[Match]:
        raise ValueError("a mistake")

    state, told = run(), Told("GT902")
    told.matches = [Match("it is wrong", {}, is_exact=True)]
    failing = Rule("GT901", Level.ERROR, "title", "why", "do this", fails)
    FindingTracker([failing, told.rule]).run(state)
    assert only_finding(state).rule == "GT902"
    assert state.problems["rule GT901"].error == "ValueError: a mistake"


def test_match_may_lower_level_and_change_remedy() -> None:
    state, told = run(), Told("GT901")
    told.matches = [Match("it grew", {}, is_exact=True, level=Level.NOTE, remedy="do that")]
    FindingTracker([told.rule]).run(state)
    assert (only_finding(state).level, only_finding(state).remedy) == (Level.NOTE, "do that")


def test_the_line_is_that_of_the_call() -> None:
    from helpers.scripted_runs import calls

    site = ev.CallSite("step", "train.py", 17)
    state, told = run(calls=calls(sites=(site,))), Told("GT901")
    told.matches = [Match("one", {}, call="step", key="1"), Match("other", {}, call="clip", key="2")]
    FindingTracker([told.rule]).run(state)
    assert [(finding.file, finding.line) for finding in state.findings] == [("train.py", 17), (None, None)]


def test_finding_stays_when_its_models_are_gone() -> None:
    state, sure, unsure = run(), Told("GT998"), Told("GT999")
    sure.matches, unsure.matches = [Match("wrong", {}, is_exact=True)], [Match("odd", {})]
    tracker = FindingTracker([sure.rule, unsure.rule])
    tracker.run(state)
    before = state.findings
    assert [each.status for each in before] == [Status.CONFIRMED, Status.SUSPECTED]
    sure.matches, unsure.matches = [], []
    state.trained_tree, state.tree = state.tree, TreeState()
    tracker.run(state)
    assert state.findings == before


@pytest.mark.parametrize(("line", "count"), [(1, 1), (2, 0)])
def test_a_comment_ignores_a_finding(line: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("optimizer.step()\noptimizer.step()  # gradtui: ignore[GT9]\n", encoding="utf-8")
    state, told = run(), Told("GT999")
    told.matches = [Match("wrong", {}, is_exact=True, call="step")]
    monkeypatch.setattr(state, "calls", SimpleNamespace(sites=(CallSite("step", str(script), line),)))
    FindingTracker([told.rule]).run(state)
    assert len(state.findings) == len(finding_notes(state)) == count


def test_rules_without_chance_are_listed_with_reason() -> None:
    def fail(_state: RunState) -> str | None:
        raise ValueError("no number")

    state, told = run(), [Told("GT995"), Told("GT996"), Told("GT997"), Told("GT998")]
    needs = [fail, lambda _state: None, lambda _state: "no evaluation ran", lambda _state: "no evaluation ran"]
    tracker = FindingTracker([replace(each.rule, needs=need) for each, need in zip(told, needs)])
    assert tracker.without_chance(state) == {"no evaluation ran": ["GT997", "GT998"]}
    assert state.problems["rule GT995"].error == "ValueError: no number"
    # A rule that has matched had a chance.
    told[3].matches = [Match("wrong", {})]
    tracker.run(state)
    assert tracker.without_chance(state) == {"no evaluation ran": ["GT997"]}


@pytest.mark.parametrize(("optimizer", "found"), [(0, ["GT901"]), (None, ["GT901"]), (1, ["GT901", "GT902"])])
def test_a_match_explains_nothing_of_another_optimizer(optimizer: int | None, found: list[str]) -> None:
    state, cause, symptom = run(), Told("GT901", explains=("GT902",)), Told("GT902")
    cause.matches = [Match("the cause", {}, optimizer=0)]
    symptom.matches = [Match("the symptom", {}, optimizer=optimizer)]
    FindingTracker([cause.rule, symptom.rule]).run(state)
    assert [finding.rule for finding in state.findings] == found
