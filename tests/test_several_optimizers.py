"""Closing lines and summary of scripts with several optimizers, against what the scripts themselves compute of each step."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.fork_server import ROOT, python
from helpers.several_optimizers import Steps

from gradtui.run.text import number_text

SCRIPT = ROOT / "tests" / "helpers" / "several_optimizers.py"
ITERATIONS = 60
NAMES = {"gan": ["Discriminator", "Generator"], "sac": ["Critic + Critic_2", "Actor", "1 tensor"]}
MODELS = {"gan": {"Generator", "Discriminator"}, "sac": {"Actor", "Critic", "Critic_2"}}


def run(kind: str, home: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], Steps]:
    summary, steps = home / "summary.json", home / "steps.json"
    words = ("--plain", "--no-listen", "--summary", str(summary), str(SCRIPT), kind, str(ITERATIONS), str(steps))
    ended = python("-m", "gradtui", *words, cwd=home, XDG_STATE_HOME=str(home / "state"))
    assert ended.returncode == 0, ended.stderr
    return ended, json.loads(summary.read_text()), [tuple(each) for each in json.loads(steps.read_text())]


def of(steps: Steps, name: str) -> list[tuple[int, float, float]]:
    """Number, loss and norm of each step of one optimizer. All steps are counted together."""
    return [(number, loss, norm) for number, (whose, loss, norm) in enumerate(steps, 1) if whose == name]


def closing_lines(stderr: str, label: str) -> list[str]:
    return re.findall(rf"^gradtui: {label:<9} (.+)$", stderr, re.MULTILINE)


@pytest.mark.parametrize("kind", ["gan", "sac"])
def test_each_optimizer_has_its_own_values(kind: str, tmp_path: Path) -> None:
    ended, summary, steps = run(kind, tmp_path)
    names = NAMES[kind]
    assert [row["name"] for row in summary["losses"]] == names
    assert [row["name"] for row in summary["gradient_norms"]] == names
    assert [row["is_main"] for row in summary["losses"]] == [True, *[False] * (len(names) - 1)]

    for row, name in zip(summary["losses"], names):
        own = of(steps, name)
        losses = {number: loss for number, loss, _ in own}
        assert row["steps"] == row["measured_steps"] == len(own)
        assert (row["first_step"], row["last_step"]) == (own[0][0], own[-1][0])
        for end in ("first", "last", "min", "max"):
            assert row[end] == pytest.approx(losses[row[f"{end}_step"]], rel=1e-6)
        assert row["min"] == pytest.approx(min(losses.values()), rel=1e-6)
        assert row["max"] == pytest.approx(max(losses.values()), rel=1e-6)

    for row, name in zip(summary["gradient_norms"], names):
        norms = {number: norm for number, _, norm in of(steps, name)}
        for end in ("first", "last", "min", "max"):
            assert row[end] == pytest.approx(norms[row[f"{end}_step"]], rel=1e-4)

    # What was there before is of the main optimizer.
    main, known = summary["gradient_norm"], summary["gradient_norms"][0]
    assert {key: main[key] for key in ("first", "first_step", "last", "last_step", "min", "max")} == {
        key: known[key] for key in ("first", "first_step", "last", "last_step", "min", "max")
    }

    ends = [(of(steps, name)[0], of(steps, name)[-1]) for name in names]
    assert closing_lines(ended.stderr, "loss") == [
        f"{name} {number_text(first[1]).strip()} (step {first[0]}) → {number_text(last[1]).strip()} (step {last[0]})"
        for name, (first, last) in zip(names, ends)
    ]
    counts = ", ".join(f"{name} {len(of(steps, name))}" for name in names)
    (line,) = closing_lines(ended.stderr, "steps")
    assert line.startswith(f"{len(steps)} steps ({counts}) in {ITERATIONS} iterations, {len(steps)} micro-steps in ")
    assert summary["iterations"] == ITERATIONS
    trained = "; ".join(closing_lines(ended.stderr, "trained"))
    assert MODELS[kind] == {model for model in MODELS[kind] if model in trained}
