"""Two ranks and the process that has launched them are stopped 60 times (nightly 200) while changes are proposed to them.

The ranks stay the same: they make the same changes at the same steps. Some stops are longer than a rank waits for its store.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from helpers.examples import nightly
from helpers.live_training import environment
from torch import distributed

from gradtui.protocol.codec import words_of
from gradtui.remote.serving import NoAnswerError, address_of, ask, live_runs

pytestmark = [
    pytest.mark.usefixtures("script_in_place"),
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

STOPS = nightly(60, 200)
LONG = nightly(4, 12)
"""Of these so many last `LONG_S`, longer than `PATIENCE` waits."""
LONG_S = 1.0
PIECE_S, PATIENCE = 0.02, 40

SCRIPT = f"""
import hashlib, os, random, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from gradtui.probe.commands.boundary import agreement
from gradtui.probe.torch_private import rendezvous

rendezvous.PIECE_S, rendezvous.PIECES, agreement.PIECES = {PIECE_S}, {PATIENCE}, {PATIENCE}
store, chance = dist.Store.compare_set, random.Random()

def slow(self, *words):
    # A stop then often comes while a rank waits for the store.
    time.sleep(chance.choice((0.0, 0.02, 0.1)))
    return store(self, *words)

dist.Store.compare_set = dist.TCPStore.compare_set = slow
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
model = torch.nn.Sequential(torch.nn.Linear(8, 8), block, torch.nn.Linear(8, 2))
wrapped = DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.Adam(wrapped.parameters(), 0.001)
data, is_over = torch.Generator().manual_seed(rank), torch.zeros(1)
with open(f"pid-{{rank}}", "w") as made:
    made.write(str(os.getpid()))
with open(f"steps-{{rank}}.txt", "w") as said:
    while not is_over:
        optimizer.zero_grad()
        wrapped(torch.randn(4, 8, generator=data)).square().mean().backward()
        optimizer.step()
        flags = "".join(str(int(each.requires_grad)) for each in model.parameters())
        values = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
        digest = hashlib.sha1(values).hexdigest()[:8]
        said.write(f"{{flags}} {{optimizer.param_groups[0]['lr']:g}} {{digest}}\\n")
        said.flush()
        if rank == 0:
            is_over.fill_(os.path.exists("over"))
        dist.broadcast(is_over, 0)
        time.sleep(0.005)
os._exit(0)
"""

LAUNCH = """
import sys
from gradtui.command_line.cli import main
from gradtui.remote.job import proposals
# Changes follow each other closely, and many confirmations come late.
proposals.LEAD_S = 0.2
sys.exit(main())
"""

ROUND = [
    words_of(words.split())
    for words in (
        "freeze module.1.0", "set-lr 0.002", "unfreeze module.1.0", "undo", "pause", "set-lr 0.001", "step 2", "resume",
        "checkpoint module.1", "undo", "freeze module.1.0", "undo",
    )
]  # fmt: skip
RELEASE = words_of(["resume"])


class Steering(threading.Thread):
    """Sends commands, one after the other."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        (live,) = live_runs(directory)
        self._address, self._is_over = address_of(directory, str(live["id"])), threading.Event()

    def run(self) -> None:
        """Send until it is over."""
        for command in itertools.cycle(ROUND):
            if self._is_over.wait(0.2):
                return
            self._send(command)

    def _send(self, command: Mapping[str, Any]) -> None:
        # The process that answers may be stopped, or have ended.
        with contextlib.suppress(NoAnswerError, OSError):
            ask(self._address, "do", command=command, client="test")

    def end(self) -> None:
        """Send nothing more."""
        self._is_over.set()
        self.join(30)

    def release(self) -> None:
        """Let held ranks go."""
        self._send(RELEASE)


def stop(chance: random.Random, processes: list[int], seconds: float) -> None:
    process = chance.choice(processes)
    os.kill(process, signal.SIGSTOP)
    threading.Event().wait(seconds)
    os.kill(process, signal.SIGCONT)
    threading.Event().wait(chance.uniform(0.0, 0.12))


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    until = monotonic() + seconds
    while not condition():
        assert monotonic() < until, what
        threading.Event().wait(0.05)


def test_ranks_stopped_anytime_make_same_changes(place: Path) -> None:
    chance = random.Random(7)
    command = [sys.executable, "-c", LAUNCH, "--plain", "torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    with (place / "said").open("w") as said:
        job = subprocess.Popen(command, cwd=place, env=environment(place), stderr=said, stdin=subprocess.DEVNULL)
    try:
        files = [place / f"steps-{rank}.txt" for rank in range(2)]
        wait_for(lambda: all(each.exists() and each.read_text().count("\n") > 20 for each in files), "training")
        ranks = [int((place / f"pid-{rank}").read_text()) for rank in range(2)]
        steering = Steering(place / "gradtui")
        steering.start()
        for number in range(STOPS):
            if number % (STOPS // LONG) == 5:
                stop(chance, ranks, LONG_S)
            else:
                stop(chance, [*ranks, *ranks, job.pid], chance.choice((0.01, 0.03, 0.1)))
        steering.end()
        (place / "over").touch()
        while job.poll() is None:
            steering.release()
            threading.Event().wait(0.5)
    finally:
        job.terminate()
        job.wait()
    first, second = (each.read_text() for each in files)
    log = (place / "said").read_text()
    assert first == second, log
    # Of 6 or so, nightly 20, unless the machine is busy.
    made = re.findall(r"gradtui: step [\d,]+: (?:froze|unfroze|Adam group|checkpoints|no longer)", log)
    assert len(made) > nightly(1, 5), log
    assert "the ranks differ" not in log
