"""Tracebacks that a script prints itself read as under plain python."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from helpers.fork_server import python
from helpers.terminal_session import TerminalSession

PYTHON_3_10 = sys.version_info < (3, 11)
KEPT = "Python 3.10 raises again with the entry of our wrapper"

ERRORS = """
import logging, sys, traceback
import torch
from torch import nn
from torch.utils.data import DataLoader

class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        raise KeyError(index)

class Inner(nn.Module):
    def forward(self, x):
        raise ValueError("in the innermost") from KeyError("cause")

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.inner = Inner()
    def forward(self, x):
        try:
            return self.inner(self.linear(x))
        except ValueError:
            return self.linear(x.T)

model = Outer()

def twice():
    loss = model.linear(torch.ones(3, 2)).sum()
    loss.backward()
    loss.backward()

def step():
    def closure():
        model(torch.ones(3, 2))
    torch.optim.LBFGS(model.parameters()).step(closure)

for attempt in (
    lambda: model(torch.ones(3, 2)),
    twice,
    step,
    lambda: list(DataLoader(Broken())),
    lambda: torch.optim.SGD([], lr=0.1),
    lambda: torch.autograd.grad(torch.ones(1), torch.ones(1)),
):
    try:
        attempt()
    except Exception:
        traceback.print_exc()
        logging.exception("as logged")
"""


def stderr_of(directory: Path, *words: str) -> str:
    done = python(*words, "errors.py", cwd=directory)
    assert done.returncode == 0, done.stderr
    return "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("gradtui: "))


@pytest.mark.skipif(PYTHON_3_10, reason=KEPT)
def test_what_a_script_prints_itself(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text(ERRORS, encoding="utf-8")
    plain, watched = stderr_of(tmp_path), stderr_of(tmp_path, "-m", "gradtui", "--plain")
    assert plain.count("as logged") == 6
    # Our wrapper does what it would do, so that the stack of a deep model is no deeper.
    assert "in _wrapped_call_impl\n" in plain
    assert watched == plain


HELD = """
import traceback
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    while True:
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
except KeyboardInterrupt:
    traceback.print_exc()
    raise
"""


@pytest.mark.skipif(PYTHON_3_10, reason=KEPT)
@pytest.mark.slow
def test_interrupt_while_held_is_script_s_own(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(HELD, encoding="utf-8")
    command = [sys.executable, "-m", "gradtui", "held.py"]
    environment = {"XDG_STATE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with TerminalSession(command, columns=150, lines=40, env=environment, cwd=tmp_path, forked=True) as run:
        run.wait_for("weight")
        run.send("pv")
        run.wait_for("  paused")
        os.kill(run.training_process().pid, 2)
        run.wait_for("exit code 130")
        run.send("q")
        run.wait_end()
    (log,) = (tmp_path / "gradtui").iterdir()
    printed = log.read_text()
    files = re.findall(r'File "(.*)", line (\d+)', printed)
    # The run is held as the model is called: nothing but the script's line and torch's own function is named.
    assert [(Path(file).name, line) for file, line in files[::2]] == [("held.py", "8")] * 2
    assert [Path(file).name for file, _ in files[1::2]] == ["module.py"] * 2
    assert printed.count("KeyboardInterrupt\n") == 2
