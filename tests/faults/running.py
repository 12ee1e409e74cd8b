"""The real command around a script that goes wrong: under the screen, with `--plain`, and as plain python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from helpers import fork_server
from helpers.terminal_session import ROOT, TerminalSession

TRAIN = """
import os, signal, sys, time
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def train(steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
def weights():
    return model.weight.detach().sum().item(), model.bias.item()
def until(name):
    open("trains", "w").close()
    end = time.monotonic() + 60  # not for ever, should the test fail
    while not os.path.exists(name) and time.monotonic() < end:
        train()
        time.sleep(0.02)  # the machine is not this test's alone
torch.manual_seed(0)
torch.nn.init.constant_(model.weight, 0.5)
torch.nn.init.constant_(model.bias, 0.5)
train(3)
"""
"""The beginning of a script that trains."""

OVER = re.compile("[✔✖] (?!no findings)")
"""What the header says when there is nothing more to come."""

PLAIN = (sys.executable, "-m", "gradtui", "--plain")
PYTHON = (sys.executable,)


def environment(directory: Path, **more: str) -> dict[str, str]:
    """One of its own for a run; its logs go to `directory`."""
    own = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(directory), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    # A log is written line by line, a pipe in blocks: unbuffered they can be compared.
    return {**os.environ, **own, "PYTHONUNBUFFERED": "1", **more}


class Screen(TerminalSession):
    """A script under the dashboard, with `fresh` in an interpreter that starts for it."""

    def __init__(
        self, directory: Path, script: str, *options: str, before: Sequence[str] = (), launcher: Sequence[str] = (),
        columns: int = 120, fresh: bool = False,
    ) -> None:  # fmt: skip
        (directory / "script.py").write_text(script, encoding="utf-8")
        self.directory = directory
        command = [*before, sys.executable, *(launcher or ("-m", "gradtui")), *options, "script.py"]
        super().__init__(
            command, columns=columns, lines=36, env=environment(directory), cwd=directory, forked=not fresh
        )

    @property
    def log(self) -> str:
        """What the script has printed so far."""
        return "".join(path.read_text(errors="replace") for path in (self.directory / "gradtui").glob("*.log"))

    def wait_log(self, text: str) -> None:
        """Wait until the script has printed this."""
        self.wait_until(lambda: text in self.log, f"{text!r} in the log: {self.log[-2000:]}")

    def wait_training(self) -> None:
        """Wait until the screen is up and steps go by."""
        self.wait_until(lambda: (self.directory / "trains").exists() and self.full_screen, "training")

    def leave(self) -> int:
        """Leave when the script has ended; the exit code."""
        self.wait_until(lambda: "── exit code" in self.text or OVER.search(self.text), "the end")
        self.send("q")
        return self.wait_end()


def run(
    command: Sequence[str], directory: Path, script: str, *, fresh: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run a script without a terminal, in a folder of its own; with `fresh` in an interpreter that starts for it."""
    directory.mkdir(exist_ok=True)
    (directory / "script.py").write_text(script, encoding="utf-8")
    return (subprocess.run if fresh else fork_server.run)(
        [*command, "script.py"], cwd=directory, env=environment(directory), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def theirs(stderr: bytes) -> bytes:
    """Without the lines of ours."""
    return b"".join(line for line in stderr.splitlines(keepends=True) if not line.startswith(b"gradtui: "))
