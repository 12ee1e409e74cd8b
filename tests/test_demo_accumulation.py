"""`demos/accumulation.py`: the four curves are what arithmetic says, and gradtui counts what the script does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.fork_server import python

DEMO = Path(__file__).parents[1] / "demos" / "accumulation.py"


def test_four_curves_of_one_gradient(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    run = python("-m", "gradtui", "--plain", "--summary", str(summary), str(DEMO), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    rows = {line[:29].strip(): [float(number) for number in line[29:].split()] for line in run.stdout.splitlines()[1:5]}
    right = rows["right"]
    assert rows["not divided"][0] == pytest.approx(4 * right[0], rel=0.01)
    # Gradients of like batches point the same way, so what is never cleared grows by about one of them a step.
    assert rows["not cleared"][-1] > 0.8 * len(right) * min(right)
    assert rows["not cleared"][0] == right[0]
    assert rows["steps too early"][0] < 0.5 * right[0]
    told = json.loads(summary.read_text())
    assert (told["steps"], told["micro_steps"]) == (4 * 12, 4 * 48)
