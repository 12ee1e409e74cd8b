"""A script that trains until a file appears, under `gradtui --plain`, and the subcommands that ask it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import fork_server

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
print("trains", flush=True)
while not os.path.exists("stop"):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
"""


def environment(place: Path, **more: str) -> dict[str, str]:
    """The environment of a command whose files and sockets are in `place`."""
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(place), "XDG_RUNTIME_DIR": str(place)}
    return os.environ | own | more


def gradtui(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradtui", *words]
    done: subprocess.CompletedProcess[str] = fork_server.run(
        command, cwd=place, env=environment(place), capture_output=True, text=True, timeout=60
    )
    return done


@contextmanager
def training(place: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run it until the context ends."""
    (place / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "gradtui", "--plain", *options, "train.py"]
    with fork_server.Popen(
        command, cwd=place, env=environment(place), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "trains\n"
        try:
            yield process
        finally:
            (place / "stop").touch()
            process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
