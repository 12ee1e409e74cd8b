"""A recording of a run gives the summary of that run, field by field, and its findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "transparency" / "scripts"
FEW_STEPS = ["--steps", "12"]


def gradtui(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(cwd)}
    command = [sys.executable, "-m", "gradtui", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=110, check=False)


def compare(script: Path, tmp_path: Path, *options: str, name: str = "run.jsonl") -> None:
    live = gradtui("--plain", "--record", name, "--summary", "live.json", *options, str(script), cwd=tmp_path)
    again = gradtui("replay", "--plain", "--summary", "again.json", name, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    summaries = [json.loads((tmp_path / file).read_text()) for file in ("live.json", "again.json")]
    assert summaries[0].keys() == summaries[1].keys()
    for field, value in summaries[0].items():
        assert summaries[1][field] == value, field
    said = [line for line in live.stderr.splitlines() if line.startswith("gradtui: ") and "left early" not in line]
    assert set(again.stderr.splitlines()) <= {*said}, "nothing is said that the run has not said"


@pytest.mark.slow
@pytest.mark.parametrize("demo", sorted(path.name for path in (ROOT / "demos").glob("*.py")))
def test_the_summary_of_a_demo(demo: str, tmp_path: Path) -> None:
    compare(ROOT / "demos" / demo, tmp_path, *FEW_STEPS)


def test_the_summary_of_a_compressed_recording(tmp_path: Path) -> None:
    compare(ROOT / "demos" / "accumulation.py", tmp_path, "--steps", "3", name="run.jsonl.zst")
