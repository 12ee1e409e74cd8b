"""Child processes that train, from end to end: they end as without gradtui, and the viewer of their parent has seen them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import fork_server
from helpers.examples import nightly
from helpers.live_training import environment
from torch import distributed

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not distributed.is_available() or not distributed.is_gloo_available(), reason="no gloo"),
]

COMMON = """
import hashlib, os, sys, torch
from torch import nn


def written(rank, model):
    digest = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters()))
    ours = sorted(name for name in os.environ if name.startswith("GRADTUI"))
    with open(f"{sys.argv[1]}-{rank}", "w") as file:
        print(digest.hexdigest(), torch.rand(1).item(), ours, sys.argv[2:], sys.path[0], __name__, file=file)
"""

SPAWN = (
    COMMON
    + """
import signal
import torch.multiprocessing as mp
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset


def prepare(index):
    torch.randn(2).sum()  # a process that trains nothing


def train(rank, size, store):
    distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=size)
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(80, 6)), 4, num_workers=rank)):
        if step == 10 and rank == 1 and "fail" in sys.argv:
            raise ValueError("the gradient of rank 1 is lost")
        optimizer.zero_grad()
        try:
            model(inputs).square().mean().backward()
        except RuntimeError:
            signal.pause()  # its neighbour has failed, and the first process is about to end it
        optimizer.step()
    written(rank, model)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        mp.spawn(prepare, nprocs=1)
    store = os.path.abspath(f"{sys.argv[1]}.store")
    mp.start_processes(train, args=(2, store), nprocs=2, start_method="METHOD")
    print("trained")
"""
).replace("METHOD", nightly("fork", "spawn"))

LIGHTNING = (
    COMMON
    + """
import lightning
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

    def on_train_batch_start(self, batch, index):
        if "by-hand" in sys.argv and index in (5, 12):
            for each in self.body[2].parameters():
                each.requires_grad_(index == 12)

    def training_step(self, batch, index):
        return self.body(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(torch.randn(160, 6)), 4))
    written(trainer.global_rank, model)
    trainer.strategy.barrier()
"""
)

PLAN = """
[[do]]
step = 5
command = "freeze"
path = "*body.2.*"
[[do]]
step = 12
command = "unfreeze"
path = "*body.2.*"
"""


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. A run in which torch aborts while it frees a process group is repeated, twice at most."""
    for _ in range(3):
        for store in place.glob("*.store"):
            store.unlink()
        done: subprocess.CompletedProcess[str] = fork_server.run(
            [sys.executable, *words], cwd=place, env=environment(place), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=110, check=False,
        )  # fmt: skip
        if done.returncode >= 0 and not any(name in done.stderr for name in ("SIGABRT", "SIGSEGV", "EADDRINUSE")):
            break
    return done


def outcomes(place: Path, name: str) -> list[str]:
    return [(place / f"{name}-{rank}").read_text() for rank in range(2)]


def ranks_in(summary: Path) -> list[tuple[int, int, int]]:
    found = json.loads(summary.read_text())["ranks"]
    return [(each["rank"], each["steps"], each["exit_code"]) for each in found]


def test_spawned_processes_train_unchanged_and_are_ranks(place: Path) -> None:
    (place / "train.py").write_text(SPAWN)
    plain = run(place, "train.py", "plain", "--lr", "1")
    options = ("--plain", "--summary", "job.json", "--record", "rank-{rank}.jsonl")
    ours = run(place, "-m", "gradtui", *options, "train.py", "ours", "--lr", "1")
    assert (plain.returncode, ours.returncode) == (0, 0), plain.stderr + ours.stderr
    assert ours.stdout == plain.stdout == "trained\n"
    assert outcomes(place, "ours") == outcomes(place, "plain")
    # The workers of the data loader, and the process that only prepared something, are no ranks.
    assert ranks_in(place / "job.json") == [(0, 20, 0), (1, 20, 0)]
    assert [each["generation"] for each in json.loads((place / "job.json").read_text())["ranks"]] == [0, 0]
    for rank in range(2):
        assert (place / f"rank-{rank}.jsonl").stat().st_size
    assert sum(line.startswith("gradtui: steps") for line in ours.stderr.splitlines()) == 1


def test_failing_spawned_process_is_reported_unchanged(place: Path) -> None:
    (place / "train.py").write_text(SPAWN)
    plain = run(place, "train.py", "x", "fail")
    ours = run(place, "-m", "gradtui", "--plain", "--summary", "job.json", "train.py", "x", "fail")
    assert (plain.returncode, ours.returncode) == (1, 1), ours.stderr

    def report(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if not line.startswith("gradtui: ")]
        lines = lines[lines.index("Traceback (most recent call last):") :]
        # What Python's tracker of semaphores says of a process that was terminated comes or not, in either run.
        return lines[: next((at for at, line in enumerate(lines) if "resource_tracker" in line), None)]

    assert report(ours.stderr) == report(plain.stderr)
    assert report(plain.stderr).count("ValueError: the gradient of rank 1 is lost") == 1
    assert "gradtui: error     rank 1: ValueError: the gradient of rank 1 is lost" in ours.stderr
    # The other rank is terminated.
    assert ranks_in(place / "job.json")[1] == (1, 10, 1)


def test_lightning_starts_script_again_as_rank(place: Path) -> None:
    pytest.importorskip("lightning")
    (place / "train.py").write_text(LIGHTNING)
    (place / "plan.toml").write_text(PLAN)
    options = ("--plain", "--schedule", "plan.toml", "--summary", "job-{rank}.json")
    ours = run(place, "-m", "gradtui", *options, "train.py", "ours", "by-schedule")
    assert ours.returncode == 0, ours.stderr
    found = outcomes(place, "ours")
    assert found[0].split()[0] == found[1].split()[0]
    if nightly(False, True):
        by_hand = run(place, "train.py", "hand", "by-hand")
        assert by_hand.returncode == 0, by_hand.stderr
        assert found == [each.replace("by-hand", "by-schedule") for each in outcomes(place, "hand")]
    # The file of this process, which has the dashboard, is that of its rank and has both; that of the child has its own.
    assert sorted(each.name for each in place.glob("job-*.json")) == ["job-0.json", "job-1.json"]
    assert ranks_in(place / "job-0.json") == [(0, 20, 0), (1, 20, 0)]
    for rank in range(2):
        changes = json.loads((place / f"job-{rank}.json").read_text())["interventions"]
        assert [(each["command"], each["step"]) for each in changes] == [("freeze", 5), ("unfreeze", 12)]
