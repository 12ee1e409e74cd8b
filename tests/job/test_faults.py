"""Faults in jobs of two processes: the ranks train as without gradtui, and the viewer reports each fault.

A rank that is stopped, a rank that fails, a launcher that restarts its ranks, and a connection that is cut.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from helpers import fork_server
from helpers.live_training import environment
from helpers.terminal_session import TerminalSession
from torch import distributed

from gradtui.protocol.events import Event, Progress, RankEvent, RankLeft
from gradtui.remote.job import RankHub
from gradtui.remote.serving.addresses import TcpAddress
from gradtui.remote.serving.server import RunServer

TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")
TOKEN = "a-token-of-this-test"
SEEN_S = 20.0
"""Seconds in which the view says what it sees."""

pytestmark = [
    pytest.mark.usefixtures("script_in_place"),
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

SCRIPT = r"""
import hashlib, os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, again = int(os.environ["RANK"]), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
if "restart" in sys.argv and not again:
    # Without a process group: torch itself may find addresses of the former one after a restart.
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while True:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        if rank == 1 and os.path.exists("fail"):
            raise ValueError("rank 1 is lost")
        open(f"trains-{rank}", "w").close()
        time.sleep(0.01)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.Adam(wrapped.parameters(), 0.01)
data = torch.Generator().manual_seed(rank)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    wrapped(torch.randn(4, 4, generator=data)).square().mean().backward()
    optimizer.step()
    if step == 20:
        open(f"trains-{rank}", "w").close()
        sys.stdout.write(f"twenty steps of {os.getpid()}\n")
    if step >= 20 and "hold" in sys.argv:
        time.sleep(0.02)
        if rank == 1 and os.path.exists("fail"):
            raise ValueError("rank 1 is lost")
    if "wait" in sys.argv:
        time.sleep(0.02)  # steps are reported five times a second
        while step == 30 and not os.path.exists("go"):
            time.sleep(0.01)
digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters()))
sys.stdout.write(f"digest {digest.hexdigest()}\n")
dist.barrier()
sys.stdout.flush()
# torch may abort while it frees what belongs to a process group (seen without gradtui, on a busy machine).
os._exit(0)
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = monotonic() + 40
    while not condition():
        assert monotonic() < deadline, what
        threading.Event().wait(0.02)


def test_stopped_rank_is_silent_and_failing_one_named(place: Path) -> None:
    command = [sys.executable, "-m", "gradtui", *TORCHRUN, "train.py", "100000", "hold"]
    environ = environment(place, FORK_RANKS="1")
    with TerminalSession(command, columns=120, lines=40, env=environ, cwd=place, forked=True) as session:
        session.wait_until(lambda: all((place / f"trains-{rank}").exists() for rank in range(2)), "training")
        (log,) = (place / "gradtui").glob("*.ranks")
        session.wait_until(lambda: "twenty" in (log / "1.log").read_text(), "the output of rank 1")
        second = int((log / "1.log").read_text().split()[-1])
        os.kill(second, signal.SIGSTOP)
        began = monotonic()
        session.wait_for("silent for")
        assert monotonic() - began < SEEN_S
        assert "gone" not in session.text
        os.kill(second, signal.SIGCONT)
        session.wait_gone("silent for")
        session.send("o")
        session.wait_for("[0] twenty steps of")
        session.wait_for("[1] twenty steps of")
        session.send("o")
        session.wait_gone("[1] twenty")
        (place / "fail").touch()
        session.wait_for("rank 1: ValueError: rank 1 is lost")
        session.wait_until(lambda: re.search("[✔✖] (?!no findings)", session.text), "the end")
        session.send("q")
        assert session.wait_end() == 1
        printed = session.raw.decode(errors="replace").rpartition("the screen is closed")[2]
        assert session.problems_left() == []
    assert "rank 1 failed first:" in printed
    assert "ValueError: rank 1 is lost" in printed
    assert "ValueError: rank 1 is lost" in printed


def test_after_restart_new_ranks_join_same_view(place: Path) -> None:
    command = [sys.executable, "-m", "gradtui", "--plain", "--summary", "job.json", *TORCHRUN, "--max-restarts", "1"]
    with (place / "said").open("w") as said:
        process = fork_server.Popen(
            [*command, "train.py", "40", "restart"], cwd=place, env=environment(place, FORK_RANKS="1"), stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL, stderr=said, text=True,
        )  # fmt: skip
    try:
        wait_until(lambda: all((place / f"trains-{rank}").exists() for rank in range(2)), "training")
        (place / "fail").touch()
        out, _ = process.communicate(timeout=60)
    finally:
        process.terminate()
        process.wait()
    lines = (place / "said").read_text()
    assert process.returncode == 0, lines
    digests = re.findall("digest (.+)", out)
    assert len(digests) == 2
    assert digests[0] == digests[1]
    assert "rank 1 failed: ValueError: rank 1 is lost" in lines
    assert "started again (generation 1)" in lines
    ranks = json.loads((place / "job.json").read_text())["ranks"]
    assert [(each["generation"], each["rank"]) for each in ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert ranks[1]["exit_code"] == 1
    # os._exit ends a process before it has reported its last steps.
    assert all(each["steps"] > 0 for each in ranks[:2])


class Proxy:
    """Passes one connection on to a port, until it is cut."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, args=(port,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        for end in self._ends:
            end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (*self._ends, self._listening):
            end.close()

    def _run(self, port: int) -> None:
        accepted, _ = self._listening.accept()
        self._ends = [accepted, socket.create_connection(("127.0.0.1", port))]
        back = threading.Thread(target=self._pump, args=self._ends[::-1], daemon=True)
        back.start()
        self._pump(*self._ends)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass


class Viewer:
    """The viewer's side of a job: a hub that listens on TCP. The connection of rank 1 can be cut."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._hub = RankHub(self.events.append, monotonic)
        self._server = RunServer({"join": self._hub.join})
        port = self._server.listen_on(TcpAddress("127.0.0.1", 0, TOKEN)).port
        self._server.start()
        self._hub.start()
        self.proxy = Proxy(port)
        self.ports = port, self.proxy.port

    @property
    def left(self) -> list[RankLeft]:
        return [each for each in self.events if isinstance(each, RankLeft)]

    def steps_of(self, rank: int) -> int:
        mine = [each for each in self.events if isinstance(each, RankEvent) and each.rank == rank]
        return max((each.step for each in mine if isinstance(each.event, Progress)), default=0)

    def close(self) -> None:
        self.proxy.close()
        self._hub.close()
        self._server.close()


def start_ranks(place: Path, viewer: Viewer | None) -> list[subprocess.Popen[str]]:
    """Start two ranks that a scheduler such as Slurm would start, under gradtui or without it."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        store = str(found.getsockname()[1])
    own = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store, "GRADTUI_TOKEN": TOKEN}
    made = []
    for rank in range(2):
        words = ["train.py", "60"]
        if viewer is not None:
            words = ["-m", "gradtui", "--connect", f"127.0.0.1:{viewer.ports[rank]}", *words, "wait"]
        started = fork_server.Popen(
            [sys.executable, *words], cwd=place, env=environment(place, **own, RANK=str(rank)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        made.append(started)
    return made


def ends_of(ranks: list[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """Wait for the ranks; return the last line that each prints, and its stderr."""
    try:
        ended = [each.communicate(timeout=60) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    assert [each.returncode for each in ranks] == [0, 0], ended
    return [(out.splitlines()[-1], err) for out, err in ended]


def test_ranks_train_on_without_viewer(place: Path) -> None:
    viewer = Viewer()
    ranks = start_ranks(place, viewer)
    try:
        wait_until(lambda: min(viewer.steps_of(rank) for rank in range(2)) > 0, "both ranks train")
        viewer.proxy.cut()
        began = monotonic()
        wait_until(lambda: viewer.left, "the viewer has noticed")
        assert monotonic() - began < SEEN_S
        (left,) = viewer.left
        assert (left.rank, left.is_over) == (1, False)
        assert "may train on" in left.reason
        (place / "go").touch()
        (first, said), (second, said_by_second) = ends_of(ranks)
        assert "gradtui" not in said
        assert "viewer of the job is lost" in said_by_second
        assert viewer.steps_of(0) > viewer.steps_of(1)
    finally:
        for each in ranks:
            each.kill()
        viewer.close()
    assert [digest for digest, _ in ends_of(start_ranks(place, None))] == [first, second]
    assert first == second
