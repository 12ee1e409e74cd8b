"""Jobs of two processes: changes on all ranks give the weights of a script that is written that way, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import fork_server, live_training
from helpers.live_training import environment
from torch import distributed

ROOT = Path(__file__).parents[2]
TORCHRUN = ("--standalone", "--nproc-per-node", "2")
POLL_S = 0.3
"""Seconds between two questions, each of which starts a process."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

SCRIPT = """
import hashlib, os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

by_hand = os.environ.get("BY_HAND") == "1"
dist.init_process_group("gloo")
rank = dist.get_rank()


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name
        setattr(self, name, nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)))

    def forward(self, x):
        return getattr(self, self.name)(x)


def train(model, layer, optimizer, data):
    for step in range(20):
        if by_hand and step in (5, 12):
            for each in layer.parameters():
                each.requires_grad_(step == 12)
                each.grad = None
        if by_hand and step == 8:
            optimizer.param_groups[0]["lr"] = 0.002
        optimizer.zero_grad()
        model(torch.randn(8, 8, generator=data)).square().mean().backward()
        optimizer.step()


def digest(tensors):
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()


def ddp():
    torch.manual_seed(0)
    model = Model("body")
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.Adam(wrapped.parameters(), 0.01)
    train(wrapped, model.body[2], optimizer, torch.Generator().manual_seed(rank))
    return digest(model.parameters())


def fsdp():
    torch.manual_seed(0)
    model = Model("trunk")
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model.trunk[0], model.trunk[2], model.trunk[4]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    train(model, model.trunk[2], optimizer, torch.Generator().manual_seed(rank))
    return digest(each.full_tensor() for each in model.parameters())


def digests(run):
    every = [None, None]
    dist.all_gather_object(every, run())
    return " ".join((run.__name__, *every))


lines = [digests(run) for run in (ddp, fsdp)]
if rank == 0:
    print(*lines, sep="\\n", flush=True)
if by_hand:
    by_hand = False
    assert not {digests(run) for run in (ddp, fsdp)} & set(lines), "the changes matter"
dist.barrier()
sys.stdout.flush()
# torch may abort while it frees what belongs to a process group (seen without gradtui, on a busy machine).
os._exit(0)
"""

SCHEDULE = "\n".join(
    f'[[do]]\nstep = {step}\ncommand = "{command}"\n{fields}\n'
    for step, command, fields in (
        (5, "freeze", 'path = "*body.2.*"'),
        (8, "set_group", "optimizer = 0\ngroup = 0\nlearning_rate = 0.002"),
        (12, "unfreeze", 'path = "*body.2.*"'),
        # The weights stay the same.
        (13, "set_checkpointing", 'path = "module.body.2"\non = true'),
        (25, "freeze", 'path = "*trunk.2.*"\nlate = true'),
        (28, "set_group", "optimizer = 1\ngroup = 0\nlearning_rate = 0.002"),
        (32, "unfreeze", 'path = "*trunk.2.*"\nlate = true'),
    )
)

LIVE = """
import os, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
wrapped = DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.Adam(wrapped.parameters(), 0.01)
data = torch.Generator().manual_seed(dist.get_rank())
changed, flags, step = [], None, 0
try:
    while True:
        if flags != (flags := [each.requires_grad for each in model.parameters()]):
            changed.append((step, flags))
        optimizer.zero_grad()
        wrapped(torch.randn(4, 4, generator=data)).square().mean().backward()
        optimizer.step()
        step += 1
        time.sleep(0.02)
finally:
    with open(f"rank-{dist.get_rank()}.txt", "w") as file:
        print(step, changed, model[0].weight.double().sum().item(), file=file)
"""


def job(place: Path, *words: str, **more: str) -> str:
    """Run a command to its end, and return what it prints on stdout."""
    done: subprocess.CompletedProcess[str] = fork_server.run(
        [sys.executable, *words], cwd=place, env=environment(place, FORK_RANKS="1", **more), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_schedule_changes_all_ranks_as_written_script(place: Path) -> None:
    (place / "train.py").write_text(SCRIPT)
    (place / "plan.toml").write_text(SCHEDULE)
    written = job(place, "-m", "torch.distributed.run", *TORCHRUN, "train.py", BY_HAND="1")
    options = ("--plain", "--schedule", "plan.toml", "--summary", "summary.json")
    steered = job(place, "-m", "gradtui", *options, "torchrun", *TORCHRUN, "train.py")
    assert steered == written
    for line in written.splitlines():
        _, first, second = line.split()
        assert first == second, "the ranks are equal"
    summary = json.loads((place / "summary.json").read_text())
    assert [each["rank"] for each in summary["ranks"]] == [0, 1]
    # The number of steps is not compared: os._exit ends a process before it has reported its last steps.
    assert summary["refused"] == []
    assert "set_checkpointing" in {each["command"] for each in summary["interventions"]}


def wait_for_step(gradtui: Callable[..., subprocess.CompletedProcess[str]], step: int) -> None:
    """Wait until the job has executed more than `step` steps."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = gradtui("status", "--json")
        if status.returncode == 0 and json.loads(status.stdout)["step"] > step:
            break
        time.sleep(POLL_S)


def tail_until(
    gradtui: Callable[..., subprocess.CompletedProcess[str]], is_there: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Return the events up to now, once there is such an event."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in gradtui("tail", "--json").stdout.splitlines()]
        if any(map(is_there, lines)):
            return lines
        time.sleep(POLL_S)
    raise AssertionError("it has not come")


def is_answer(line: dict[str, Any], command: object) -> bool:
    return line["event"] == "CommandApplied" and line["command"]["id"] == command


def made_by(answer: dict[str, Any]) -> tuple[str, list[int]]:
    """Return what a command has done, and which ranks have done it."""
    return answer["text"], [each["rank"] for each in answer["ranks"] if each["did"] == "made"]


def start_live_job(place: Path) -> subprocess.Popen[bytes]:
    """Start two ranks of `train.py` under gradtui, with a summary and a recording."""
    files = ("--summary", "summary.json", "--record", "run.jsonl")
    command = [sys.executable, "-m", "gradtui", "--plain", *files, "torchrun", *TORCHRUN, "train.py"]
    with (place / "said").open("w") as said:
        environ = environment(place, FORK_RANKS="1")
        return fork_server.Popen(command, cwd=place, env=environ, stdin=subprocess.DEVNULL, stderr=said)


def test_live_job_is_controlled_on_all_ranks(place: Path) -> None:
    (place / "train.py").write_text(LIVE)

    gradtui = partial(live_training.gradtui, place)

    def answer(*words: str) -> dict[str, Any]:
        return json.loads(gradtui("do", "--json", "--wait", *words).stdout)

    process = start_live_job(place)
    try:
        wait_for_step(gradtui, 20)
        paused = answer("pause")
        assert paused["text"] == "pause"
        held = json.loads(gradtui("status", "--json").stdout)
        assert held["step"] == paused["step"]
        # While all ranks are held, a change is made at once.
        frozen = json.loads(gradtui("do", "--json", "freeze", "module.0").stdout)
        assert made_by(answer("step", "2")) == ("run 2 steps", [0, 1])
        lines = tail_until(gradtui, lambda line: is_answer(line, frozen["id"]))
        assert [line["step"] for line in lines if is_answer(line, frozen["id"])] == [paused["step"]]
        assert "no module or parameter" in str(answer("freeze", "nothing.of.it")["refused"])
        assert answer("show-rank", "1")["text"] == "rank 1 is shown"
        # Nothing is lost with the other rank: it is the same training.
        assert json.loads(gradtui("status", "--json").stdout)["step"] == paused["step"] + 2
        assert "rank 5 is not connected" in str(answer("show-rank", "5")["refused"])
        assert answer("resume")["text"] == "resume"
        checkpointed = json.loads(gradtui("do", "--json", "checkpoint", "module.2").stdout)
        lines = tail_until(gradtui, lambda line: line["event"] == "CheckpointingChanged")
        (begun,) = [line for line in lines if is_answer(line, checkpointed["id"])]
        assert begun["text"].startswith("checkpoints module.2")
        (changed,) = [line for line in lines if line["event"] == "CheckpointingChanged"]
        assert begun["step"] < changed["step"] <= begun["step"] + 10
        assert answer("stop")["text"] == "stop"
        process.wait(60)
    finally:
        # SIGTERM lets torchrun end its processes.
        process.terminate()
        process.wait()
    ranks = [(place / f"rank-{rank}.txt").read_text() for rank in range(2)]
    assert ranks[0] == ranks[1]
    # The boundary after a step is the first forward of the next one, which the script has begun by then.
    assert f"({held['step'] + 1}, [False, False, True, True])" in ranks[0]
    summary = json.loads((place / "summary.json").read_text())
    assert [(each["command"], each["step"]) for each in summary["interventions"]] == [
        ("freeze", paused["step"]),
        ("set_checkpointing", begun["step"]),
    ]
    gradtui("replay", "--plain", "--summary", "replayed.json", "run.jsonl")
    assert (place / "replayed.json").read_bytes() == (place / "summary.json").read_bytes()
