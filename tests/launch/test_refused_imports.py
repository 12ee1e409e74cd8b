"""A script that changes where modules are found changes nothing in what gradtui reports of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers.fork_server import python

REFUSES = """
import os, sys, tempfile, time

class Refuses:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
        raise ImportError(f"{name} is refused")

asked = []

def refuse():
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    os.rmdir(gone)
    sys.path.clear()
    sys.meta_path.insert(0, Refuses())
"""
TRAINS = """
import torch
import torch._dynamo, torch.utils.data, torch.profiler
if "early" in sys.argv:
    refuse()
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    if step == 1 and "refuse" in sys.argv:
        refuse()
    optimizer.zero_grad()
    model(torch.ones(3)).sum().backward()
    optimizer.step()
"""
STANDS_ALONE = "if len(sys.argv) > 1: refuse()\n"
ENDS = "print([name for name in asked if name.startswith('gradtui')])\n"
NAMES = ("fractions", "json", "msgspec", "platformdirs", "psutil", "queue", "select", "shlex", "statistics")


def without_figures(text: str) -> list[str]:
    """Return the lines that gradtui writes, by their first words: figures differ between two runs."""
    return re.findall(r"^gradtui: ([a-z]+)", text, flags=re.MULTILINE)


def test_end_of_run_is_reported_as_ever(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the script')")
    (tmp_path / "script.py").write_text(REFUSES + STANDS_ALONE + ENDS)
    command = ("-m", "gradtui", "--plain", "script.py")
    usual, refused = (python(*command, *words, cwd=tmp_path, fresh=True) for words in ((), ("refuse",)))
    assert usual.returncode == refused.returncode == 0, refused.stderr
    assert usual.stdout == refused.stdout == "[]\n"
    assert without_figures(refused.stderr) == without_figures(usual.stderr) != []
    assert "failed" not in refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="psutil is imported elsewhere, from the script's directory")
@pytest.mark.parametrize("when", ["early", "refuse"])
def test_training_imports_nothing_of_gradtui(when: str, tmp_path: Path) -> None:
    for name in ("fractions", "msgspec", "platformdirs", "psutil", "statistics"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the script')")
    (tmp_path / "script.py").write_text(REFUSES + TRAINS + ENDS)
    command = ("-m", "gradtui", "--plain", "script.py")
    usual, refused = (python(*command, *words, cwd=tmp_path) for words in ((), (when,)))
    assert usual.returncode == refused.returncode == 0, refused.stderr
    assert usual.stdout == refused.stdout == "[]\n"
    assert without_figures(refused.stderr) == without_figures(usual.stderr) != []
    assert "failed" not in refused.stderr
