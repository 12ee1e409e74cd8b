"""Frameworks that save and resume as they do by themselves: gradtui knows where the run continues, and finds nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from helpers.examples import nightly
from helpers.fork_server import python

SCRIPT = Path(__file__).parent / "scripts" / "resumed.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="these packages are in the test extra from Python 3.11 on"),
]


RUNS = [("transformers", 8), ("accelerate", 7), ("lightning", 14)]


@pytest.mark.parametrize(("name", "saved_step"), RUNS[: nightly(2, 3)])
def test_a_resumed_run(name: str, saved_step: int, tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path / "resumed.py")
    for file, words in (("a.jsonl", []), ("b.jsonl", ["resume"])):
        done = python("-m", "gradtui", "--plain", "--record", file, "resumed.py", name, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "GT" not in done.stderr
    report = python("-m", "gradtui", "compare", "--resume", "--format", "json", "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    found = json.loads(report.stdout)
    assert (found["saved_step"], found["findings"]) == (saved_step, [])
    rows = {row["name"]: row["is_equal"] for row in found["rows"]}
    assert (rows["weights"], rows["learning rate"]) == (True, True)
    if name != "accelerate":
        # accelerate shuffles by a generator of its own in each epoch.
        assert (rows["batch"], rows[f"loss, A step {saved_step + 1}"]) == (True, name == "transformers")
