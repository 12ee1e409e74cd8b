"""Launchers from end to end: ranks of gloo on the CPU under gradtui end as without it, and its viewer has seen them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import fork_server

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # each run imports torch three times
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="no gloo"
    ),
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX"),
]

TRAIN = """
import hashlib, os, random, sys
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(rank)
layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
layers[0].weight.requires_grad_(False)
model = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
    if step == 10 and rank == 1 and "fail" in sys.argv:
        raise ValueError("the gradient of rank 1 is lost")
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
own = torch.rand(1).item(), random.random() * 0, sorted(name for name in os.environ if name.startswith("GRADTUI"))
with open(f"{sys.argv[1]}-{rank}", "w") as file:
    print(digest.hexdigest(), *own, sys.argv[2:], sys.path[0], __name__, __package__, file=file)
distributed.barrier()  # a rank that leaves early makes gloo of the others abort
distributed.destroy_process_group()
"""

ACCELERATE = """
import hashlib, sys
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
for step in range(12):
    optimizer.zero_grad()
    accelerator.backward(model(torch.randn(4, 8) + accelerator.process_index).square().mean())
    optimizer.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
with open(f"{sys.argv[1]}-{accelerator.process_index}", "w") as file:
    print(digest.hexdigest(), accelerator.num_processes, type(model).__name__, sys.argv[2:], file=file)
accelerator.end_training()
"""

VARYING = re.compile(r"\d{4}[-:.\d_]+|\b\d{2,}\b|bin/python\d*")
"""Times, process ids, ports, and the name of the interpreter."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pack").mkdir()
    for name, text in (("pack/__init__.py", ""), ("pack/train.py", TRAIN), ("prepared.py", ACCELERATE)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(project: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a module without a terminal. The environment has no rank, and what else is in `more`.

    torch may abort while it frees what belongs to a process group, and a launcher may choose a port that another
    process takes first: such a run is repeated, twice at most.
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HOME": str(project / "nothing")} | more
    for _ in range(3):
        done: subprocess.CompletedProcess[str] = fork_server.run(
            [sys.executable, "-m", *words],
            cwd=project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
        if not any(name in done.stderr for name in ("SIGABRT", "SIGSEGV", "EADDRINUSE")):
            break
    return done


def written_by_ranks(project: Path, name: str) -> list[str]:
    return [(project / f"{name}-{rank}").read_text(encoding="utf-8") for rank in range(2)]


def test_two_ranks_end_as_under_torchrun(project: Path) -> None:
    two = ("--standalone", "--nproc-per-node", "2")
    plain = run(project, "torch.distributed.run", *two, "-m", "pack.train", "plain", "--lr", "1", FORK_RANKS="1")
    options = ("--plain", "--summary", "job.json", "--record", "rank-{rank}.jsonl")
    ours = run(project, "gradtui", *options, "torchrun", *two, "-m", "pack.train", "ours", "--lr", "1", FORK_RANKS="1")
    assert (plain.returncode, ours.returncode) == (0, 0), plain.stderr + ours.stderr
    assert written_by_ranks(project, "ours") == written_by_ranks(project, "plain")
    assert ours.stdout == plain.stdout == ""
    job = json.loads((project / "job.json").read_text(encoding="utf-8"))
    assert [(each["rank"], each["steps"], each["exit_code"]) for each in job["ranks"]] == [(0, 20, 0), (1, 20, 0)]
    for rank in range(2):
        header = json.loads((project / f"rank-{rank}.jsonl").read_text(encoding="utf-8").partition("\n")[0])
        assert (header["rank"], header["script"]) == (rank, "pack.train")
    # Only the viewer speaks for the job.
    assert sum(line.startswith("gradtui: steps") for line in ours.stderr.splitlines()) == 1


def test_failing_rank_fails_job_with_same_report(project: Path) -> None:
    two = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "0")
    launcher = ("torch.distributed.launch", "--use-env", *two, "pack/train.py", "x", "fail")
    plain = run(project, *launcher, FORK_RANKS="1")
    ours = run(project, "gradtui", "--plain", "-m", *launcher, FORK_RANKS="1")
    assert (plain.returncode, ours.returncode) == (1, 1), ours.stderr

    def report(text: str) -> list[str]:
        """The traceback of rank 1, and the names that torchrun gives."""
        lines = [VARYING.sub("#", line) for line in text.splitlines() if not line.startswith("gradtui: ")]
        own = [line for line in lines if line.startswith("[rank1]")]
        return [*own, *(line for line in lines if "FAILED" in line or "ChildFailedError" in line)]

    assert "[rank1]: ValueError: the gradient of rank 1 is lost" in report(plain.stderr)
    assert report(ours.stderr) == report(plain.stderr)
    assert "pack/train.py FAILED" in report(ours.stderr)


def test_accelerate_on_the_cpu(project: Path) -> None:
    pytest.importorskip("accelerate")
    words = ("--multi_gpu", "--num_processes", "2", "--main_process_port", "0", "prepared.py")
    plain = run(project, "accelerate.commands.launch", *words, "plain", "--x", FORK_RANKS="1")
    if plain.returncode:  # seen on a busy machine: there is nothing to compare with
        pytest.skip(f"accelerate fails without gradtui: {plain.stderr[-2000:]}")
    options = ("--plain", "--summary", "job.json")
    ours = run(project, "gradtui", *options, "accelerate", "launch", *words, "ours", "--x", FORK_RANKS="1")
    assert (plain.returncode, ours.returncode) == (0, 0), plain.stderr + ours.stderr
    assert written_by_ranks(project, "ours") == written_by_ranks(project, "plain")
    job = json.loads((project / "job.json").read_text(encoding="utf-8"))
    assert [(each["rank"], each["steps"]) for each in job["ranks"]] == [(0, 12), (1, 12)]


def test_errors_of_the_command_line_are_the_launchers(project: Path) -> None:
    plain = run(project, "torch.distributed.run", "--nproc-per-nod", "2", "--bad", "pack/train.py")
    ours = run(
        project, "gradtui", "--plain", "-m", "torch.distributed.run", "--nproc-per-nod", "2", "--bad", "pack/train.py"
    )
    assert plain.returncode == ours.returncode == 2
    # On a busy machine a progress line comes before it.
    assert "".join(line for line in ours.stderr.splitlines(True) if not line.startswith("gradtui: ")) == plain.stderr
