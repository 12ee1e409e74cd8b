"""A side that runs out of a device's memory, on a simulated device: it is the result, and the run continues without it.

Kernels compute nothing there, so the script computes what it trains on the host.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.simulated import run_simulated

pytestmark = pytest.mark.fake_cuda

SCRIPT = """
import hashlib, json
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.enabled = False
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(12)).requires_grad_(False)
        self.large = nn.Embedding(16384, 512).requires_grad_(False)
        self.head = nn.Linear(512, 1)

    def forward(self, x):
        x = x.expand(4096, 512).contiguous()
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x + self.large.weight[:4096]).mean()


model = Model().cuda()
optimizer = torch.optim.Adam(each for each in model.parameters() if each.requires_grad)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
for (batch,) in DataLoader(TensorDataset(torch.randn(45, 1)), shuffle=True):
    optimizer.zero_grad()
    model(batch.cuda()).backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for each in model.parameters():
            if each.requires_grad and each.numel() < 1 << 18:
                each.copy_(each.cpu() + batch.sum() * optimizer.param_groups[0]["lr"])
values = [each.detach().cpu().double().numpy().tobytes() for each in (*model.head.parameters(), *model.layers.parameters())]
random = torch.get_rng_state().numpy().tobytes() + torch.cuda.get_rng_state().numpy().tobytes()
digest = hashlib.md5(b"".join([*values, random])).hexdigest()
print(json.dumps([digest, optimizer.param_groups[0]["lr"], len(optimizer.param_groups)]))
"""
TOTAL = 620 << 20
"""Bytes of the device, of which the context takes 500 MiB: enough for all but the first two changes."""
TRY = """version = 1
[[do]]
step = 6
command = "try_change"
changes = ["unfreeze layers", "unfreeze large", "freeze head.bias"]
steps = 10
"""


def test_side_without_memory_ends_and_run_goes_on(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.toml"
    schedule.write_text(TRY, encoding="utf-8")
    plain = run_simulated(SCRIPT, total=TOTAL, watched=False)
    done = run_simulated(SCRIPT, total=TOTAL, options=("--schedule", str(schedule)), folder=tmp_path)
    assert (plain.returncode, done.returncode) == (0, 0), done.stderr
    assert done.told == plain.told
    line = next(each for each in done.stderr.splitlines() if "tried unfreeze layers" in each)
    found = line.partition("tried ")[2].split("; ")
    assert found[0].startswith("unfreeze layers: failed: ")
    assert "out of memory. Tried to allocate" in found[0]
    assert ", in forward of " in found[0]
    assert found[1].startswith("tried unfreeze large: failed: CUDA out of memory")
    assert found[1].endswith(("in backward, step 1", "in step, step 1"))
    assert found[2].startswith("tried freeze head.bias on 10 batches: loss ")
