"""Three clients send 1,500 random commands (nightly 10,000), many of them invalid, to a run that trains."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import fork_server
from helpers.examples import nightly
from helpers.live_training import environment

from gradtui.remote.serving import Client, NoAnswerError, address_of

COMMANDS, CONNECTIONS = nightly(1_500, 10_000), 3
pytestmark = pytest.mark.usefixtures("script_in_place")

SCRIPT = """
import hashlib, os, torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
most, step = int(os.environ.get("STEPS", "0")), 0
print("trains", flush=True)
while step < most if most else not os.path.exists("stop"):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(16, 4)), torch.randn(16, 2)).backward()
    optimizer.step()
    step += 1
found = hashlib.sha256()
for name, each in sorted(model.state_dict().items()):
    found.update(each.numpy().tobytes())
for group in optimizer.param_groups:
    for each in group["params"]:
        state = optimizer.state.get(each, {})
        found.update(b"".join(state[name].numpy().tobytes() for name in sorted(state)))
print(step, found.hexdigest(), repr([(g["lr"], g["weight_decay"]) for g in optimizer.param_groups]))
"""

PATHS = ("0", "1", "4", "0.weight", "4.bias", "*.bias", ":head", ":norms", "", "none.such", "a b [", "\x00", "é" * 500)
RATES = (0.0, 1e-3, 0.05, -1.0, None, "NaN", 10**400)


def random_command(random_: random.Random) -> Any:
    """Return a command that may be valid, or anything else."""
    path, rate = random_.choice(PATHS), random_.choice(RATES)
    if random_.random() < CHANGING:
        return random_.choice(
            (
                {"command": "freeze", "path": path, "state": random_.choice(("keep", "drop", "offload", "lose"))},
                {"command": "unfreeze", "path": path},
                {"command": "train_only", "selection": path},
                {"command": "set_group", "optimizer": 0, "group": random_.choice((0, 1, -1)), "learning_rate": rate},
                {"command": "set_mode", "path": path, "training": random_.choice((True, False, "yes"))},
                {"command": "zero_gradients"},
                {"command": "skip_step"},
                {"command": "undo"},
            )
        )
    return random_.choice(
        (
            {"command": "pause"},
            {"command": "resume"},
            {"command": "run_steps", "count": random_.choice((1, 3, -1, 2.5))},
            {"command": "set_breakpoint", "metric": random_.choice(("loss", "step", "time")), "value": rate},
            {"command": "clear_breakpoint", "breakpoint": random_.randrange(100)},
            {"command": "verify_freeze"},
            {"command": "watch", "parameters": [path]},
            {"command": "trace_gradient", "path": path},
            {"command": "freez", "path": path},
            {"command": "freeze", "paths": path},
            {"command": ["freeze"]},
            {},
            None,
            [],
            7,
        )
    )


PREVIEWED = 0.05
"""The share of commands that are previewed and not sent."""
CHANGING = 0.08
"""The share of commands that change the script's objects: a run keeps a thousand of them for its schedule."""


def send(directory: Path, id_: str, seed: int, failures: list[str]) -> None:
    random_ = random.Random(seed)
    for part in range(10):
        try:
            with Client(address_of(directory, id_)) as client:
                for _ in range(COMMANDS // CONNECTIONS // 10 + 1):
                    # The reason of a refusal is one line; a connection that breaks is a failure.
                    try:
                        asked = "preview" if random_.random() < PREVIEWED else "do"
                        client.ask(asked, command=random_command(random_), client=f"client {seed}")
                    except NoAnswerError as refused:
                        if "\n" in str(refused) or "lost" in str(refused) or "has ended" in str(refused):
                            failures.append(f"{part}: {refused}")
        except NoAnswerError as error:
            failures.append(f"{part}: {error}")


@contextlib.contextmanager
def run(place: Path, *options: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Train, with files for what is printed: a pipe that nobody reads would hold the run."""
    command = [sys.executable, "-m", "gradtui", "--plain", "--summary", "summary.json", *options, "train.py"]
    with (
        (place / "printed").open("w") as printed,
        (place / "said").open("w") as said,
        fork_server.Popen(
            command, cwd=place, env=environment(place) | more, stdin=subprocess.DEVNULL, stdout=printed, stderr=said,
            text=True,
        ) as process,
    ):  # fmt: skip
        yield process
    assert process.returncode == 0, (place / "said").read_text()[-2000:]


def steered(place: Path, *options: str) -> tuple[str, str]:
    """Let the clients steer a run, and end it. Return what it has printed."""
    with run(place, *options) as process:
        while not (place / "printed").read_text():
            assert process.poll() is None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        (socket,) = place.rglob("*.sock")
        failures: list[str] = []
        clients = [
            threading.Thread(target=send, args=(socket.parent, socket.stem, seed, failures))
            for seed in range(CONNECTIONS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert failures == []
        (place / "stop").touch()
        # A breakpoint may hold the run again.
        while process.poll() is None:
            with contextlib.suppress(NoAnswerError), Client(address_of(socket.parent, socket.stem)) as client:
                client.ask("do", command={"command": "resume"}, client="the last")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    return (place / "printed").read_text(), (place / "said").read_text()


@pytest.mark.slow
def test_the_run_is_that_of_its_own_schedule(place: Path) -> None:
    printed, said = steered(place)
    summary = json.loads((place / "summary.json").read_text())
    changes = len(summary["interventions"])
    assert changes > COMMANDS // 100
    assert {each["origin"] for each in summary["interventions"]} == {"client 0", "client 1", "client 2"}
    found = re.search(r"--schedule (\S+\.toml)", said)
    assert found is not None, said
    steps = printed.split()[1]
    with run(place, "--schedule", found[1], STEPS=steps):
        pass
    assert (place / "printed").read_text() == printed


@pytest.mark.slow
def test_without_permission_nothing_changes(place: Path) -> None:
    printed, _ = steered(place, "--read-only")
    assert json.loads((place / "summary.json").read_text())["interventions"] == []
    plain = fork_server.run(
        [sys.executable, "train.py"], cwd=place, env=os.environ | {"OMP_NUM_THREADS": "1", "STEPS": printed.split()[1]},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert plain.stdout == printed
