"""A run that is killed dies as under plain python, and leaves the summary that was written last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.terminal_session import ROOT, TerminalSession

ENDLESS = """
import atexit, signal, time
import torch
atexit.register(print, "atexit ran")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
while True:
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def has_steps(path: Path) -> bool:
    return path.exists() and read(path)["steps"] > 0


@pytest.mark.slow
def test_sigterm_without_a_screen(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS, encoding="utf-8")
    path = tmp_path / "s.json"
    words = [sys.executable, "-m", "gradtui", "--plain", "--summary", "s.json", "endless.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        deadline = time.monotonic() + 60
        while not has_steps(path) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == -signal.SIGTERM, stderr
    assert stdout == b"True set()\n"
    summary = read(path)
    assert summary["exit_code"] is None
    assert summary["steps"] > 0
    assert summary["models"][0]["type"] == "Linear"


@pytest.mark.slow
def test_sigterm_under_the_screen(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS, encoding="utf-8")
    path = tmp_path / "s.json"
    command = [sys.executable, "-m", "gradtui", "--summary", "s.json", "endless.py"]
    environment = {"XDG_STATE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with TerminalSession(command, columns=120, lines=36, env=environment, cwd=tmp_path) as run:
        run.wait_until(lambda: has_steps(path), "a summary")
        run.process.kill(signal.SIGTERM)
        assert run.wait_end() == 128 + signal.SIGTERM
        assert run.problems_left() == []
    assert read(path)["exit_code"] is None
    assert read(path)["steps"] > 0
