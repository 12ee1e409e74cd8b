"""Peaks on a simulated device: those of the run and of each phase are the allocator's, and the script's are its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import simulated
from helpers.simulated import run_simulated
from torch import nn

from gradtui.probe.frozen.bits import BitSample, weighted_sum
from gradtui.probe.gradients import grad_stats

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
    reserved = torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()
    print(json.dumps([step, *reserved, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]))
    torch.cuda.reset_peak_memory_stats()
    sys.stdout.flush()
"""


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer"])
def test_peak_of_unsampled_step_is_exact(where: str) -> None:
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


def launched(work: Callable[[], object]) -> int:
    before = simulated.calls().of("cudaLaunchKernel")
    work()
    return simulated.calls().of("cudaLaunchKernel") - before


def test_checksum_takes_few_launches_and_little_memory() -> None:
    frozen = nn.Parameter(torch.empty(64 * MIB, device="cuda"))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    # 32 MiB at a time.
    assert 0 < launched(lambda: weighted_sum(frozen.detach())) < 8 * 8 + 10
    assert torch.cuda.max_memory_allocated() - before < MIB, "the sums take no buffer as large as the tensor"
    frozen.grad = torch.empty(64 * MIB, device="cuda")
    # A free block in which differences have room.
    del (block := [torch.empty(64 * MIB, device="cuda")])[0]
    assert not block
    assert 0 < launched(lambda: grad_stats._counts(frozen.grad)) < 40
    many = [(number, torch.empty(256, device="cuda")) for number in range(3000)]
    del many[::3]
    assert 0 < launched(lambda: BitSample(many)) < 100


FROZEN = """
import json
import torch
from torch import nn

body = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda().requires_grad_(False)
head = nn.Linear(512, 8).half().cuda()
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(60):
    optimizer.zero_grad()
    head(body(torch.ones(16, 512, device="cuda")).half()).float().square().mean().backward()
    optimizer.step()
    print(json.dumps([torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()]))
"""


@pytest.mark.parametrize("total", [80 << 30, 700 << 20])
def test_the_allocator_holds_what_it_would_without_gradtui(total: int) -> None:
    plain = run_simulated(FROZEN, watched=False, total=total)
    assert run_simulated(FROZEN, total=total).told == plain.told
    assert len(plain.told) == 60


WATCH = """
import contextlib, json, sys
import gradtui
import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
is_watched = sys.argv[1] == "watched"
with gradtui.watch(model, optimizer, progress=False) if is_watched else contextlib.nullcontext():
    for step in range(60):
        optimizer.zero_grad()
        model(torch.ones(2, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        stats = torch.cuda.memory_stats()
        print(json.dumps([stats[f"{name}.all.peak"] for name in ("allocated_bytes", "reserved_bytes", "active")]))
print(json.dumps([torch.cuda.max_memory_allocated()]))
"""


def test_watch_leaves_peaks_read_by_script() -> None:
    plain, ours = (run_simulated(WATCH, how, watched=False) for how in ("alone", "watched"))
    assert len(plain.told) == 61
    assert ours.told == plain.told


FREEZE = """
import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(90):
    optimizer.zero_grad()
    model(torch.ones(256, 512, device="cuda")).square().mean().backward()
    optimizer.step()
"""


def test_receipt_of_freeze_has_peak_of_step(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.toml"
    schedule.write_text('[[do]]\nstep = 40\ncommand = "freeze"\npath = "0"\n', encoding="utf-8")
    ours = run_simulated(FREEZE, options=("--schedule", str(schedule)))
    found = re.search(r"froze 0: memory peak ([\d.]+) → ([\d.]+) MiB", ours.stderr)
    assert found is not None, ours.stderr
    # The gradients of the layer, and as much that Adam's step needs for a while.
    assert float(found[1]) - float(found[2]) == pytest.approx(2 * (512 * 512 + 512) * 4 / MIB, abs=0.11)


CAUGHT = """
import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    if step == 3:
        try:
            torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
"""


def test_caught_failed_allocation_is_reported_with_figures() -> None:
    (failure,) = run_simulated(CAUGHT).summary["out_of_memory"]
    assert failure["device"] == "cuda:0"
    assert failure["requested_bytes"] == 200 << 30
    # The simulated device has 80 GiB.
    assert re.fullmatch(
        r"the allocator could not get 200(\.0+)? GiB: 7\d\.\d+ GiB of 80(\.0+)? GiB are free", failure["message"]
    )
