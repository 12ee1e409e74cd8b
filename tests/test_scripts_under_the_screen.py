"""What a script may do while the screen is up, in a real terminal: it meets what plain python would have it meet."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
from terminal_session import TerminalSession

from gradtui.runner.output_capture import INPUT_REFUSED


def session(directory: Path, script: str, *arguments: str) -> TerminalSession:
    (directory / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "gradtui", "script.py", *arguments]
    environment = {"XDG_STATE_HOME": str(directory), "OMP_NUM_THREADS": "1"}
    return TerminalSession(command, columns=150, lines=50, env=environment, cwd=directory, forked=True)


@pytest.mark.slow
def test_a_script_that_wants_input_gets_the_end_of_the_file_and_the_person_the_reason(tmp_path: Path) -> None:
    with session(tmp_path, "answer = input('how many? ')\n") as run:
        run.wait_for("EOFError: EOF when reading a line")
        run.wait_for("stdin belongs to the dashboard")
        run.wait_for("exit code 1")
        run.send("q")
        assert run.wait_end() == 1
        assert run.problems_left() == []


@pytest.mark.slow
def test_the_reason_is_also_the_last_that_is_said(tmp_path: Path) -> None:
    script = """
try:
    input("how many? ")
except EOFError:
    for number in range(100):
        print("line", number)
"""
    with session(tmp_path, script) as run:
        run.wait_for("line 99")
        run.send("q")
        assert run.wait_end() == 0
        assert run.raw.split(b"\x1b[?1049l")[-1].count(INPUT_REFUSED.strip().encode()) == 1


WAITS = """
import os, signal, sys
import torch

deaths = []
signal.signal(signal.SIGCHLD, lambda *_: deaths.append(1))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

def train():
    while not os.path.exists(sys.argv[1]):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

train()
first = os.fork()
if first == 0:
    os._exit(7)
reaped = []
while True:
    try:
        reaped.append(os.wait())
    except ChildProcessError:
        break
print("reaped only its own:", reaped == [(first, 7 << 8)], "told of", len(deaths), flush=True)
"""


@pytest.mark.slow
def test_a_script_that_waits_for_any_child_meets_only_its_own(tmp_path: Path) -> None:
    with session(tmp_path, WAITS, "go") as run:
        plots = run.plot_server()
        training = run.training_process()
        assert training.children() == []
        (tmp_path / "go").touch()
        run.wait_for("reaped only its own: True told of 1")
        run.send("q")
        assert run.wait_end() == 0
    assert psutil.wait_procs([plots], timeout=20)[1] == []
