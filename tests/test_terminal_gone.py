"""The terminal goes away while a run is on the screen, as when SSH drops: training goes on and says where."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from helpers.terminal_session import TerminalSession

SCRIPT = """
import signal, subprocess, sys, time
from pathlib import Path
import torch

print("handler is the default", signal.getsignal(signal.SIGHUP) == signal.SIG_DFL, flush=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
steps = 0
end = time.monotonic() + 120
while not Path("go").exists() and time.monotonic() < end:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    steps += 1
    Path("lives").touch()
print("trained on", steps, flush=True)
print("and on stderr", file=sys.stderr, flush=True)
Path("done").write_text("saved")
"""
HANDLER = "import signal, sys\nsignal.signal(signal.SIGHUP, lambda *_: sys.exit(42))\n"


def start(directory: Path, script: str = SCRIPT, *, shell: bool = False) -> TerminalSession:
    (directory / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "gradtui", "--log", "out.log", "--summary", "summary.json", "script.py"]
    if shell:
        command = ["/bin/bash", "--norc", "-i", "-c", '"$@"; echo over', "bash", *command]
    return TerminalSession(command, columns=120, lines=36, env={"OMP_NUM_THREADS": "1"}, cwd=directory, forked=True)


def trains(session: TerminalSession, directory: Path) -> None:
    """Wait until steps are going by under the screen."""
    session.wait_until(lambda: (directory / "lives").exists() and session.full_screen, "training")


def training_of(leader: int) -> psutil.Process:
    """The process that trains: its log is open in it."""
    found = psutil.Process(leader).children(recursive=True)
    return next(each for each in found if any(file.path.endswith("out.log") for file in each.open_files()))


@pytest.mark.slow
@pytest.mark.parametrize("shell", [False, True], ids=["by itself", "in a shell"])
def test_training_goes_on_to_its_end(shell: bool, tmp_path: Path) -> None:
    with start(tmp_path, shell=shell) as session:
        trains(session, tmp_path)
        training = training_of(session.process.pid)
        session.hang_up()
        log = tmp_path / "out.log"
        session.wait_until(lambda: "the terminal is gone" in log.read_text(), "what became of it")
        assert f"as process {training.pid}" in log.read_text()
        (tmp_path / "lives").unlink()
        session.wait_until((tmp_path / "lives").exists, "another step")
        (tmp_path / "go").touch()
        gone = psutil.wait_procs([training], timeout=20)[0]
        assert gone == [training]
    text = log.read_text()
    assert "handler is the default True" in text
    assert (tmp_path / "done").read_text() == "saved"
    assert text.index("the terminal is gone") < text.index("trained on") < text.index("and on stderr")
    assert "gradtui: ended with exit code 0" in text or "steps," in text[text.index("and on stderr") :]
    assert json.loads((tmp_path / "summary.json").read_text())["exit_code"] == 0


@pytest.mark.slow
def test_sent_hang_up_ends_as_ever(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        trains(session, tmp_path)
        os.kill(session.process.pid, signal.SIGHUP)
        assert session.wait_end() == 128 + signal.SIGHUP
        assert session.problems_left() == []


@pytest.mark.slow
def test_a_handler_of_the_script_s_is_asked(tmp_path: Path) -> None:
    with start(tmp_path, HANDLER + SCRIPT) as session:
        trains(session, tmp_path)
        os.kill(session.process.pid, signal.SIGHUP)
        session.wait_until(lambda: "exit code 42" in session.text, "the handler's exit")
        session.send("q")
        assert session.wait_end() == 42
        assert session.problems_left() == []


@pytest.mark.slow
def test_left_screen_is_as_plain_python(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        trains(session, tmp_path)
        session.send("q")
        session.wait_for("Leave")
        session.send("l")
        session.wait_for("the screen is closed")
        training = training_of(session.process.pid)
        os.kill(training.pid, signal.SIGHUP)
        assert session.wait_end() == 128 + signal.SIGHUP
