"""The whole program in a real terminal: a person freezes a layer with the keyboard and leaves."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from helpers.fork_server import python
from helpers.terminal_session import TerminalSession

# Each step writes the checksum of every parameter, so that holding still can be seen from outside.
TRAIN = """
import sys, zlib
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Tanh())
        self.head = nn.Linear(64, 2)

    def forward(self, x):
        return self.head(self.body(x))

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=0.1)
with open(sys.argv[1], "w", buffering=1) as record:
    for step in range(1_000_000):
        for _ in range(20):  # a step of some milliseconds
            torch.mm(torch.ones(200, 200), torch.ones(200, 200))
        loss = net(torch.randn(64, 32)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        sums = {name: zlib.crc32(p.detach().numpy().tobytes()) for name, p in net.named_parameters()}
        print(step, *(f"{name}={value}" for name, value in sums.items()), file=record)
        if step % 100 == 0:
            print("printed at", step, flush=True)
"""


class Run(TerminalSession):
    """The script under gradtui in a terminal of 120x36, with `fresh` in an interpreter that starts for it."""

    def __init__(self, directory: Path, *, fresh: bool = False) -> None:
        script = directory / "train.py"
        script.write_text(TRAIN, encoding="utf-8")
        self.record = directory / "record.txt"
        command = [sys.executable, "-m", "gradtui", str(script), str(self.record)]
        environment = {"XDG_STATE_HOME": str(directory), "OMP_NUM_THREADS": "1"}
        super().__init__(command, columns=120, lines=36, env=environment, forked=not fresh)

    def sums(self, name: str) -> list[str]:
        """The checksums of a parameter, step by step, so far."""
        lines = self.record.read_text(encoding="utf-8").splitlines()[:-1]
        return [field.split("=")[1] for line in lines for field in line.split() if field.startswith(f"{name}=")]

    def select(self, words: str) -> None:
        """Put the cursor on the row that matches a filter."""
        self.send(f"/{words}\r")

    def answer(self, key: str, begins: str) -> None:
        """Press a key and wait for the training thread's answer in the events panel."""
        self.send(key)
        self.wait_for(begins)

    def toggle(self, question: str, answer: str) -> None:
        """Press space, which asks what a large change would do, and press it again."""
        self.answer(" ", f"Press space again to {question}")
        assert answer not in self.text
        # The line of the events may be gone before it is read; the list of changes has it with its step.
        verb = answer.split()[0]
        self.send(" ")
        self.wait_until(lambda: answer in self.text or re.search(rf"\d {verb} ", self.text), answer)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def fresh_run(tmp_path: Path) -> Run:
    return Run(tmp_path, fresh=True)


def show_events(run: Run) -> None:
    run.wait_for("Events")
    run.wait_for("head")
    # Before the first step it is not known what trains, and a key that asks for a toggle is answered with that.
    run.wait_for("2,242 trainable")
    run.send("v")
    run.wait_until(lambda: "found" in run.text, "the events panel")


@pytest.mark.slow
def test_layer_frozen_by_keyboard_holds_still_to_bit(fresh_run: Run) -> None:
    with fresh_run as run:
        show_events(run)
        run.select("body.0.weight")
        run.toggle("freeze body.0.weight", "froze body.0.weight: 1 tensor")
        run.wait_until(lambda: "unchanged bit for bit for 10 steps" in run.changes, "the receipt")
        seen = run.sums("body.0.weight")
        still = next(step for step, value in enumerate(seen) if value == seen[-1])
        assert len(seen) - still >= 10
        assert len(set(seen[still:])) == 1
        assert len(set(seen[:still])) == still
        moving = run.sums("head.weight")
        assert len(set(moving)) == len(moving)
        run.toggle("unfreeze body.0.weight", "unfroze body.0.weight: 1 tensor")
        count = len(run.sums("body.0.weight"))
        run.wait_until(lambda: len(run.sums("body.0.weight")) > count + 20, "more steps")
        assert run.sums("body.0.weight")[-1] != seen[-1]
        run.send("q")
        run.wait_for("Stop training")
        run.send("s")
        assert run.wait_end() == 0
        assert run.problems_left() == []


@pytest.mark.slow
def test_freezing_last_trainable_parameter_is_refused_with_reason(run: Run) -> None:
    with run:
        show_events(run)
        run.send("\x1b[H")  # home
        run.toggle("freeze the model: 4 tensors", "refused: nothing would")
        before = len(run.sums("body.0.bias"))
        run.wait_until(lambda: len(run.sums("body.0.bias")) > before + 5, "training goes on")
        assert len(set(run.sums("body.0.bias")[before:])) > 1


@pytest.mark.slow
def test_pause_holds_thread_and_one_step_steps(run: Run) -> None:
    with run:
        show_events(run)
        run.answer("p", "paused")
        before = len(run.record.read_text(encoding="utf-8").splitlines())
        run.send("n")
        run.wait_until(lambda: len(run.record.read_text(encoding="utf-8").splitlines()) == before + 1, "one step")
        run.wait_until(lambda: len(re.findall("▶ .* paused", run.text)) == 2, "held again")
        run.send("p")
        run.wait_until(lambda: len(run.record.read_text(encoding="utf-8").splitlines()) > before + 5, "running")


@pytest.mark.slow
def test_the_terminal_is_restored_after_sigkill(fresh_run: Run) -> None:
    with fresh_run as run:
        run.wait_for("printed at")
        assert run.full_screen
        os.kill(run.training_process().pid, signal.SIGKILL)
        assert run.wait_end() == 128 + signal.SIGKILL
        assert run.problems_left() == []
        assert "SIGKILL" in run.text


@pytest.mark.slow
def test_leaving_lets_training_run_on_in_the_terminal(run: Run) -> None:
    with run:
        run.wait_for("printed at")
        run.send("q")
        run.wait_for("Leave; training continues")
        run.send("l")
        run.wait_until(lambda: not run.full_screen and not run.problems_left(), "the terminal as it was")
        count = run.text.count("printed at")
        run.wait_until(lambda: run.text.count("printed at") > count, "output in the terminal")
        run.send("\x03")
        assert run.wait_end() == 128 + signal.SIGINT


@pytest.mark.slow
def test_keyboard_acts_are_repeated_by_schedule(run: Run, tmp_path: Path) -> None:
    with run:
        show_events(run)
        run.send("f")
        run.wait_for("train only")
        run.send("head")
        run.wait_for("train only head (2 tensors): stops body")
        run.wait_for("Leaves 2 tensors, 130 parameters")
        run.answer("\r", "trains only head")
        run.send("f")
        run.wait_for("Freeze…")
        run.send("\t\t*.bias")
        run.wait_for("unfreeze *.bias (2 tensors)")
        run.answer("\r", "unfroze *.bias")
        count = len(run.sums("head.bias"))
        run.wait_until(lambda: len(run.sums("head.bias")) > count + 20, "more steps")
        run.send("q")
        run.wait_for("Stop training")
        run.send("s")
        assert run.wait_end() == 0
    done = run.record.read_text(encoding="utf-8")
    (schedule,) = (tmp_path / "gradtui").glob("*.toml")
    # `--steps` ends a run as its last step ends, before the script can record that one.
    options = ["--plain", "--schedule", str(schedule), "--steps", str(done.count("\n") + 1)]
    again = python("-m", "gradtui", *options, "train.py", str(run.record), cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert run.record.read_text(encoding="utf-8") == done


@pytest.mark.slow
def test_run_is_held_at_nan_and_continues(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    spoilt = TRAIN.replace("loss.backward()", "(loss * (float('nan') if step == 60 else 1)).backward()")
    script.write_text(spoilt, encoding="utf-8")
    record = tmp_path / "record.txt"
    command = [sys.executable, "-m", "gradtui", "--pause-at-nan", str(script), str(record)]
    environment = {"XDG_STATE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with TerminalSession(command, columns=120, lines=36, env=environment, forked=True) as run:
        run.wait_for("Paused before the optimizer step")
        run.wait_for("First NaN: forward of step 61, in the loss")
        # The script writes a line after each step, and the 61st has not run.
        lines = record.read_text(encoding="utf-8").splitlines()
        assert len(lines) == 60
        run.wait_for("NaN at 61")
        # Enter stays paused.
        run.send("\rp")
        run.wait_until(lambda: len(record.read_text(encoding="utf-8").splitlines()) > 80, "running on")


@pytest.mark.slow
def test_typing_while_dialog_opens_goes_into_it(run: Run) -> None:
    with run:
        run.wait_for("2,242 trainable")
        run.send("fhead\r")
        run.wait_for("parameters, 130 trainable")
        run.send("qs")
        assert run.wait_end() == 0
