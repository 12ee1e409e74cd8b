"""Whole runs whose memory runs out: the script's ending is plain python's, and the file and the summary say why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.fork_server import python
from helpers.side_by_side import write

SCRIPT = """
    import sys, torch
    from torch import nn

    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 64)
        def forward(self, x):
            x = torch.tanh(self.fc(x))
            if len(x) > 100:
                {allocation}
            return x

    model = nn.Sequential(nn.Linear(64, 64), Greedy())
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(6):
        batch = torch.ones(200 if step == 4 else 50, 64)
        {body}
"""
TRAIN = "model(batch).sum().backward(); optimizer.step(); optimizer.zero_grad()"
CATCH = f"""try:
            {TRAIN}
        except (RuntimeError, MemoryError):
            print("smaller")
            batch = batch[:50]
            {TRAIN}"""
TOO_MUCH = "torch.empty(1 << 58)"
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30)); bytearray(64 << 30)"


def run(tmp_path: Path, *, allocation: str, body: str) -> tuple[Any, dict[str, Any], str]:
    """The run by us, insisting on plain python's output and ending; with its summary and what stderr says more."""
    script = write(tmp_path / "train.py", SCRIPT.format(allocation=allocation, body=body))
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    ours = python("-m", "gradtui", "--plain", "--summary", "s.json", script.name, cwd=tmp_path, **state)
    plain = python(script.name, cwd=tmp_path)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode)
    said = ours.stderr.splitlines(keepends=True)
    assert "".join(line for line in said if not line.startswith("gradtui: ")) == plain.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    return ours, summary, "".join(line for line in said if line.startswith("gradtui: "))


@pytest.mark.parametrize(
    ("allocation", "requested"), [(TOO_MUCH, 1 << 60), (LIMIT, None)], ids=["torch", "python under a limit"]
)
def test_a_script_that_dies(tmp_path: Path, allocation: str, requested: int | None) -> None:
    ours, summary, said = run(tmp_path, allocation=allocation, body=TRAIN)
    assert ours.returncode == 1
    (box,) = summary["out_of_memory"]
    assert (box["step"], box["phase"], box["module"], box["device"]) == (4, "forward", "1", "cpu")
    assert box["requested_bytes"] == requested
    size = 2 * (64 * 64 + 64) * 4
    assert (box["bytes"]["parameters"], box["bytes"]["optimizer_state"]) == (size, 2 * size + 4 * 4)
    assert said.endswith(f"written to {box['file']}\n")
    assert "CPU out of memory in 1 " in Path(box["file"]).read_text()


def test_a_script_that_catches_it_and_goes_on(tmp_path: Path) -> None:
    ours, summary, _ = run(tmp_path, allocation=TOO_MUCH, body=CATCH)
    assert (ours.returncode, ours.stdout) == (0, "smaller\n")
    assert summary["steps"] == 6
    (box,) = summary["out_of_memory"]
    assert Path(box["file"]).is_file()


def test_error_outside_hooks_is_seen_at_end(tmp_path: Path) -> None:
    _, summary, said = run(tmp_path, allocation="pass", body=f"{TRAIN}; step == 4 and torch.empty(1 << 58)")
    (box,) = summary["out_of_memory"]
    assert (box["step"], box["module"], box["phase"]) == (5, None, "data")
    assert "CPU out of memory in data: " in said


def test_unwritable_place_is_one_line(tmp_path: Path) -> None:
    # A log that is nobody's to write, not even root's.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); import signal; "
    quiet = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    script = write(tmp_path / "train.py", SCRIPT.format(allocation=limit + quiet + TOO_MUCH, body=TRAIN))
    ours = python("-m", "gradtui", "--plain", script.name, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "state"))
    assert ours.returncode == 1
    said = [line for line in ours.stderr.splitlines() if "not written down" in line]
    assert said
    assert [line.rpartition(": ")[2] for line in said] == ["File too large"] * len(said)
    assert list(tmp_path.rglob("*out-of-memory*")) == []


def test_a_script_that_dies_without_a_model(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", f"import torch\ndata = torch.ones(1 << 20)\n{TOO_MUCH}")
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    ours = python("-m", "gradtui", "--plain", "--summary", "s.json", script.name, cwd=tmp_path, **state)
    assert ours.returncode == 1
    (box,) = json.loads((tmp_path / "s.json").read_text())["out_of_memory"]
    assert (box["step"], box["phase"], box["requested_bytes"]) == (0, "load", 1 << 60)
