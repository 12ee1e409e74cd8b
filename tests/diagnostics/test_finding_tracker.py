"""What becomes of findings when models end or a comment ignores them, and which rules had no chance to match."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import coop_run

from gradtui.diagnostics import FindingTracker, Match, Rule
from gradtui.protocol.call_order import CallSite
from gradtui.reducer import apply
from gradtui.state.findings import Level
from gradtui.state.run_state import RunState, TreeState


def state_of_a_run() -> RunState:
    state = RunState()
    for event in coop_run(3):
        apply(state, event)
    return state


def rule(id_: str = "GT999", *, sure: bool = True, lacked: str | None = None) -> Rule:
    """A rule that matches as long as there are models."""

    def check(state: RunState) -> Iterator[Match]:
        if state.tree.modules:
            yield Match("wrong", {}, is_exact=sure, call="step")

    return Rule(id_, Level.ERROR, "wrong", "because", "do this", check, needs=lambda _state: lacked)


@pytest.mark.parametrize("sure", [True, False])
def test_a_finding_stays_as_it_was_when_its_models_are_gone(sure: bool) -> None:
    state, tracker = state_of_a_run(), FindingTracker([rule(sure=sure)])
    tracker.run(state)
    before = state.findings
    assert [each.rule for each in before] == ["GT999"]
    state.trained_tree, state.tree = state.tree, TreeState()
    tracker.run(state)
    assert state.findings == before


def test_a_finding_ends_when_its_rule_matches_no_more() -> None:
    state, tracker = state_of_a_run(), FindingTracker([rule()])
    tracker.run(state)
    state.tree = TreeState(measured=state.tree.measured + 1)
    tracker.run(state)
    assert [each.cleared_step for each in state.findings] == [state.step]


def test_a_comment_ignores_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("optimizer.step()\noptimizer.step()  # gradtui: ignore[GT9]\n", encoding="utf-8")
    for line, count in ((1, 1), (2, 0)):
        state, tracker = state_of_a_run(), FindingTracker([rule()])

        class Calls:
            sites = (CallSite("step", str(script), line),)

        monkeypatch.setattr(state, "calls", Calls)
        tracker.run(state)
        assert len(state.findings) == count
        assert sum(entry.kind == "finding" for entry in state.log) == count


def test_rules_without_a_chance_are_listed_by_what_the_run_lacked() -> None:
    def fail(_state: RunState) -> str | None:
        raise ValueError("no number")

    never = [rule("GT997", lacked="no evaluation ran"), rule("GT998", lacked="no evaluation ran"), rule("GT996")]
    failing = Rule("GT995", Level.NOTE, "", "", "", lambda _state: (), needs=fail)
    tracker = FindingTracker([*never, failing])
    state = RunState()
    assert tracker.without_chance(state) == {"no evaluation ran": ["GT997", "GT998"]}
    assert state.problems["rule GT995"].error == "ValueError: no number"
    # A rule that has matched had a chance.
    trained = state_of_a_run()
    tracker.run(trained)
    assert tracker.without_chance(trained) == {}
