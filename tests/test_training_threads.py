"""Several threads that train at once, each a model of its own: none may be disturbed, and nothing may end the process."""

from __future__ import annotations

from pathlib import Path

from helpers.fork_server import python

SCRIPT = """
import sys, threading
import torch
from torch import nn

sys.setswitchinterval(1e-5)

def train(seed):
    made = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=made) * 0.05)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(80):
        optimizer.zero_grad()
        model(torch.randn(8, 16, generator=made)).square().mean().backward()
        optimizer.step()
    sums[seed] = [parameter.sum().item() for parameter in model.parameters()]

sums = {}
threads = [threading.Thread(target=train, args=(seed,)) for seed in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(sums.items()))
"""


def test_threads_that_train_at_once_are_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "threads.py"
    script.write_text(SCRIPT)
    plain = python(script.name, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    for _ in range(3):
        watched = python("-m", "gradtui", "--plain", "--budget", "100%", script.name, cwd=tmp_path)
        assert (watched.returncode, watched.stdout) == (0, plain.stdout), watched.stderr[-2000:]
    assert "several threads train at once" in watched.stderr
    assert "of one of the threads that train" in watched.stderr
