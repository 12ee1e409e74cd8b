"""No rule has a finding above *note* on training that is correct."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from correct_accumulation import ACCUMULATION
from correct_freezes import FREEZES
from correct_loops import LOOPS as CORRECT_LOOPS
from correct_models import MODELS
from helpers.examples import combinations, nightly
from helpers.fork_server import python
from helpers.loops import LOOPS
from helpers.training import square_step
from rule_runs import EVERY_STEP, state_after, state_after_script
from zoo import SPECIMENS

from gradtui.configuration.choices import DEFAULT_SHARE
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

DEMOS = Path(__file__).parents[2] / "demos"
CORRECT = {**CORRECT_LOOPS, **ACCUMULATION, **MODELS, **FREEZES}
STEPS = 20
PAIRS = [*((name, "plain") for name in SPECIMENS), *(("mlp", name) for name in LOOPS if name != "plain")]
MEANT: dict[str, set[str]] = {"under_no_grad": {"GT201"}}
"""Specimens whose parameters get no gradient, although their optimizer has them."""


def above_note(state: RunState) -> set[str]:
    """The rules with a finding above *note*, cleared ones too."""
    return {finding.rule for finding in state.findings if finding.level is not Level.NOTE}


# torch warns of reentrant checkpoints without inputs that require a gradient.
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "budget"), combinations(CORRECT, [EVERY_STEP, DEFAULT_SHARE]))
def test_correct_training(name: str, budget: float) -> None:
    train: Callable[[], Any] = CORRECT[name]
    state = state_after(train, budget=budget)
    assert above_note(state) == set(), state.findings


@pytest.mark.slow
@pytest.mark.parametrize(("specimen", "loop"), PAIRS, ids=lambda value: value)
def test_the_zoo(specimen: str, loop: str) -> None:
    made = SPECIMENS[specimen]()
    state = state_after(lambda: LOOPS[loop](made.model, made.batch, made.loss, STEPS))
    assert above_note(state) == MEANT.get(specimen, set()), state.findings


@pytest.mark.slow
@pytest.mark.parametrize(("demo", "steps"), [("coop_like", nightly(20, 40)), ("freeze_schedule", 200)])
def test_the_demos(demo: str, steps: int, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    words = ("check", "--steps", str(steps), "--summary", str(summary), str(DEMOS / f"{demo}.py"))
    run = python("-m", "gradtui", *words, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))
    assert run.returncode == 0, run.stderr
    found = json.loads(summary.read_text(encoding="utf-8"))
    assert found["steps"] == steps
    assert [finding["message"] for finding in found["findings"] if finding["level"] != "note"] == []


@pytest.mark.slow
def test_a_demo_of_mistakes() -> None:
    """`accumulation.py` steps too early, does not divide and does not clear, in one process."""
    state = state_after_script(DEMOS / "accumulation.py")
    assert {(finding.rule, finding.key) for finding in state.findings} == {
        ("GT204", "first 1"), ("GT205", "2"), ("GT203", "3"),
    }  # fmt: skip


@pytest.mark.slow
def test_training_under_compile() -> None:
    """By the compiler's own backend for tests, which generates no code."""

    def train() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            square_step(compiled, optimizer, torch.randn(4, 8))

    state = state_after(train)
    torch.compiler.reset()
    # gradtui profiles no memory in a process that has compiled something, and other tests run in this process too.
    torch._dynamo.utils.counters.clear()
    assert above_note(state) == set(), state.findings
