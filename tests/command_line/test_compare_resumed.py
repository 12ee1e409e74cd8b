"""`gradtui compare --resume`, from two runs to the report; and what a resumed run of another process is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_lines import ended
from helpers.fork_server import python

from gradtui.configuration.choices import FINDINGS_EXIT_CODE

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = torch.nn.Sequential()
model.add_module("evil\\x1b[31m", torch.nn.Linear(8, 8))
model.add_module("head", torch.nn.Linear(8, 2))
model[0].requires_grad_("--frozen" in sys.argv)
optimizer = torch.optim.Adam(each for each in model.parameters() if each.requires_grad)
loader = DataLoader(torch.randn(40, 8), batch_size=4, shuffle=True)
if "--resume" in sys.argv:
    checkpoint = torch.load("last.pt")
    model.load_state_dict(checkpoint["model"])
    if "--forget" not in sys.argv:
        optimizer.load_state_dict(checkpoint["optimizer"])
    torch.set_rng_state(checkpoint["rng"])
for epoch in range(2):
    for inputs in loader:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    if epoch == 0 and "--resume" not in sys.argv:
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        torch.save(parts, "last.pt")
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of the script, of its resumed run, and of one that forgets the optimizer's state."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(SCRIPT)
    for name, arguments in (("first", ()), ("second", ("--resume",)), ("forgets", ("--resume", "--forget"))):
        done = python("-m", "gradtui", "--plain", "--record", f"{name}.jsonl", "train.py", *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def comparison_text(capsys: pytest.CaptureFixture[str], a: Path, b: Path, *options: str) -> str:
    code, out, _ = ended(capsys, "compare", "--resume", *options, a, b)
    assert code == 0
    return out


def test_a_run_that_continues(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = comparison_text(capsys, runs / "first.jsonl", runs / "second.jsonl", "--format", "json")
    found = json.loads(text)
    assert (found["saved_step"], found["last_step"], found["first_step"]) == (10, 20, 1)
    assert {row["name"]: row["is_equal"] for row in found["rows"]} == {
        "weights": True, "learning rate": True, "batch": True, "loss, A step 10": None, "loss, A step 11": True,
    }  # fmt: skip
    assert found["findings"] == []


def test_a_run_that_has_forgotten_something(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = comparison_text(capsys, runs / "first.jsonl", runs / "forgets.jsonl")
    assert "found in B: " in text
    assert "weights" in text
    assert "after step 10 of 20" in text


def test_a_run_that_has_loaded_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has loaded no training" in comparison_text(capsys, runs / "second.jsonl", runs / "first.jsonl")
    assert "has not loaded what" in comparison_text(capsys, runs / "second.jsonl", runs / "second.jsonl")


def test_clean_names_and_exit_code_of_finding(runs: Path) -> None:
    done = python("-m", "gradtui", "check", "--fail-on", "warning", "train.py", "--resume", "--forget", cwd=runs)
    assert done.returncode == FINDINGS_EXIT_CODE, done.stderr
    assert "warning GT801: " in done.stderr
    failed = python("-m", "gradtui", "check", "train.py", "--resume", "--frozen", cwd=runs)
    assert failed.returncode == 1
    assert "error GT802: " in failed.stderr
    assert "evil·[31m.weight and evil·[31m.bias" in failed.stderr
    assert "\x1b" not in failed.stderr
