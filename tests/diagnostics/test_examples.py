"""The examples of the rules: the faulty form gives the rule's finding and no other one, the corrected form gives none.

A rule that is off by default runs beside those that are on. The examples of rules about ranks run as two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers.ranks import outcomes_of_ranks, state_of_ranks
from rule_runs import EVERY_STEP, state_after_script

from gradtui.configuration.choices import DEFAULT_SHARE
from gradtui.run.diagnostics import all_rules
from gradtui.run.state.findings import Level, Status
from gradtui.run.state.run_state import RunState

DOCS = Path(__file__).parents[2] / "docs" / "rules"
RULES = {rule.id: rule for rule in all_rules()}


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def state_with(name: str, *arguments: str) -> RunState:
    """Return the state after the example of a rule, with the findings of this rule and of those that are on by default."""
    rules = [rule for rule in all_rules() if rule.is_default or rule.id == name]
    # In a sampled step gradtui's own work is a part of the time.
    budget = DEFAULT_SHARE if name.startswith("GT7") else EVERY_STEP
    if name.startswith("GT6") or name == "GT708":
        outcomes = outcomes_of_ranks(DOCS / f"{name}.py", *arguments, budget=budget)
        return state_of_ranks([each.events for each in outcomes], rules)
    samples = name == "GT709"
    return state_after_script(DOCS / f"{name}.py", *arguments, rules=rules, budget=budget, samples=samples)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_page_and_an_example(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}: ")
    for part in ("What", "Why it is wrong", "What to do", "When it is deliberate", "Evidence", "Source"):
        assert f"\n**{part}.**" in page, part
    assert (DOCS / f"{name}.py").exists()


# torch warns in some faulty scripts.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_the_faulty_form(name: str) -> None:
    for _ in range(3 if name == "GT707" else 1):  # other tests, which run beside it, may slow its first steps down
        state = state_with(name)
        if mine := [finding for finding in state.findings if finding.rule == name]:
            break
    assert mine
    assert mine[0].is_open
    assert mine[0].status is Status.CONFIRMED
    others = {finding.rule for finding in state.findings if finding.is_open} - {name, *RULES[name].explains}
    assert others == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_the_corrected_form(name: str) -> None:
    state = state_with(name, "fixed")
    assert [finding for finding in state.findings if finding.level is not Level.NOTE] == []
    assert [finding for finding in state.findings if finding.rule == name] == []
