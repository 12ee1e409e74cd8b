"""Peaks on a simulated device: those of the run and of each phase are the allocator's, and the script's are its own."""

from __future__ import annotations

import pytest
from simulated import run_simulated

pytestmark = pytest.mark.fake_cuda

MIB = 1 << 20

SCRIPT = """
import json, sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(64, 256, device="cuda")
where, when = sys.argv[1], int(sys.argv[2])


def reach(here, step):
    if (here, step) == (where, when):
        torch.empty(300 << 20, dtype=torch.uint8, device="cuda")


def late(*_):
    reach("backward", step)


model[1].weight.register_post_accumulate_grad_hook(late)
optimizer.register_step_pre_hook(lambda *_: reach("optimizer", step))
for step in range(1, 151):
    optimizer.zero_grad()
    hidden = model[:2](x)
    reach("forward", step)
    model(x).square().mean().backward()
    optimizer.step()
    if step % 25 == 13:
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()
    print(json.dumps([step, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]))
    torch.cuda.reset_peak_memory_stats()
    sys.stdout.flush()
"""


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer"])
def test_the_peak_of_a_step_that_is_not_sampled_is_exact(where: str) -> None:
    plain = run_simulated(SCRIPT, where, "77", watched=False)
    ours = run_simulated(SCRIPT, where, "77")
    assert ours.told == plain.told
    highest = max(peak for *_, peak in plain.told)
    assert highest > 300 * MIB
    peak = ours.summary["memory"]["peak"]
    assert peak["exact"]
    # The allocator rounds each of some hundred requests up to 512 bytes.
    assert highest - MIB < peak["bytes"] <= highest
    assert peak["since_step"] <= 77 <= peak["step"]
    if peak["since_step"] == peak["step"]:
        assert peak["phase"] == where
        assert ours.summary["phases"][where]["bytes_peak"] == peak["bytes"]
    assert ours.calls.waits == plain.calls.waits
