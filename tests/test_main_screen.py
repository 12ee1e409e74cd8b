"""The main screen in a real terminal: what a user sees of a run, and what the keys do to it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers.terminal_session import TerminalSession

TRAIN = """
import os, time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16).requires_grad_(False)
        self.prompt = nn.Parameter(torch.zeros(16))
        self.body = nn.Linear(16, 16).requires_grad_(False)
        self.tail = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 2))

    def forward(self, x):
        return self.tail(self.body(self.embed(x) + self.prompt))

net = Net()
optimizer = torch.optim.Adam(net.parameters())
print("printed by the script", flush=True)
with open("steps", "w", buffering=1) as steps:
    for step in range(1, 1_000_000):
        loss = net(torch.randn(64, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, file=steps)
        time.sleep(0.01)
        if step == 5 or os.path.exists("hold"):
            open("held", "w").close()
            while os.path.exists("hold"):
                time.sleep(0.01)
"""
WIDE, NARROW = (160, 50), (80, 24)
CURVE = re.compile("┤[^│]*[⠁-⣿]|│ [⠁-⣿]{3}")
"""A curve of dots, beside its axis or without one."""
PEAK = re.compile(r"▲|Memory +(peak )?≥?[\d.]+ [KM]iB \w+ @\d")
"""The peak's mark above its column, or its size, phase and step in the title of a panel without room for the mark."""
GREY = range(232, 256)
"""The grey levels among 256 colours."""


class Run(TerminalSession):
    """The script on a terminal without colours. It waits at a step while there is a file `hold`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "train.py").write_text(TRAIN, encoding="utf-8")
        (directory / "hold").touch()
        environment = {"XDG_STATE_HOME": str(directory), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        command = [sys.executable, "-m", "gradtui", "--refresh", "10", "train.py"]
        super().__init__(command, columns=160, lines=50, env=environment, cwd=directory, forked=True)

    @property
    def steps(self) -> int:
        """How many steps the script has done."""
        return (self.directory / "steps").read_text(encoding="utf-8").count("\n")

    def hold(self) -> None:
        """Let the script wait at its next step."""
        (self.directory / "held").unlink()
        (self.directory / "hold").touch()

    def wait_held(self) -> None:
        self.wait_until((self.directory / "held").exists, "the script waiting")

    def let_go(self) -> None:
        (self.directory / "hold").unlink()

    def pause_at(self, step: int) -> None:
        """Set a breakpoint."""
        self.send("b")
        self.wait_for("enter sets it")
        self.send(f"step {step}\r")
        self.wait_gone("enter sets it")

    def wait_paused(self, step: int) -> None:
        """Wait until the header says so, and insist that no further step has run."""
        self.wait_until(lambda: re.search(rf"^ ‖ train\.py +step {step} +paused", self.text), f"paused at {step}")
        assert self.steps == step

    def state_of(self, row: str) -> str | None:
        """The word in the tree for the state of a row."""
        found = re.search(rf" {row} .*? (trains|passes|off|unreached|–) ", self.text)
        return found and found[1]

    def wait_panels(self, *titles: str) -> None:
        """Wait until the tree, the curves, the memory, why and the output are all there, whole."""
        for title in ("Model", "Loss", "Memory", "net · ", "Output", *titles):
            self.wait_for(title)
        self.wait_until(lambda: CURVE.search(self.text), "a curve")
        self.wait_until(lambda: PEAK.search(self.text), "the peak within a step")
        self.wait_for("printed by the script")
        self.wait_for("space would freeze it")
        self.wait_until(lambda: self.state_of("prompt") == "trains", "the state of a row")
        assert "this panel failed" not in self.text


def check_panels_and_states(run: Run) -> None:
    """All panels are there at once, at every size; states are words where there are no colours."""
    for size, titles in ((NARROW, ("│ Events │ Changes",)), (WIDE, ("│ Events", "Nothing has been changed yet"))):
        run.resize(*size)
        run.wait_panels(*titles)
        states = [run.state_of(row) for row in ("embed", "prompt", "body", "tail")]
        assert states == ["off", "trains", "passes", "trains"]
    colours = {int(found) for found in re.findall(rb"[34]8;5;(\d+)[;m]", run.raw)}
    assert colours <= set(GREY)
    assert not re.search(rb"\x1b\[(?:\d+;)*[34][0-7](?:;\d+)*m|[34]8;2;", run.raw)


def freeze_tail(run: Run) -> None:
    """A large freeze: what it would change, a second press, pending, applied, and what came of it."""
    run.hold()
    run.send("p")
    run.wait_held()
    run.send("/tail\r")
    run.wait_until(lambda: re.search(r"─ tail · ", run.text), "the row explained")
    run.send(" ")
    run.wait_for("Press space again to freeze tail: 4 tensors")
    assert "Nothing has been changed yet" in run.changes
    run.send(" ")
    run.wait_until(lambda: "freeze tail waits for the next step" in run.changes, "pending")
    run.wait_for("pending: freeze at the next step")
    run.let_go()
    run.wait_until(lambda: re.search(r"\d+ froze tail ", run.changes), "applied")
    run.wait_until(lambda: "unchanged bit for bit for 10 steps" in run.changes, "the receipt")
    run.wait_until(lambda: "waits for" not in run.text, "nothing pending")
    run.wait_until(lambda: run.state_of("tail") == "passes", "the new state")


@pytest.mark.slow
def test_what_the_main_screen_shows_and_does(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        run.wait_held()
        run.wait_for("738 parameters, 322 trainable")

        # A breakpoint pauses the run, and says so.
        run.pause_at(20)
        run.let_go()
        run.wait_paused(20)

        check_panels_and_states(run)

        run.pause_at(30)
        run.send("p")
        run.wait_for("Paused: Step 30")
        run.wait_paused(30)

        # One step is profiled while training is paused.
        run.send("t")
        run.wait_for("gradtui ran this one step")
        run.wait_for("Step 31: ")
        run.send("\x1b")
        run.wait_gone("gradtui ran this one step")
        run.wait_paused(31)

        freeze_tail(run)
        run.send("q")
        run.wait_for("Stop training")
        run.send("s")
        assert run.wait_end() == 0
        assert run.problems_left() == []
