"""A CUDA device's memory under the command, in processes of their own: checked on a simulated device, and not yet on any other.

What the script reads of the allocator is compared with a run under plain python, what we tell of a phase with what the script
measures itself by resetting the peaks, and the parts of the driver's figure with their sum. It must pass on a machine where
the driver hides the numbers of processes, as in most containers: there the whole device's figure takes the place of ours.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import fork_server
from helpers.simulated import LIBRARIES, machine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.fake_cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TRAIN = """
import atexit, json, sys, time
import torch
from torch import nn

def model_and_input():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.GELU(), nn.Linear(256, 16)).cuda()
    return model, torch.randn(512, 256, device="cuda"), torch.optim.AdamW(model.parameters(), lr=1e-3)

def train(model, x, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""

READINGS = (
    TRAIN
    + """
KINDS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")

def readings():
    torch.cuda.synchronize()
    stats, same = torch.cuda.memory_stats(), torch.accelerator.memory_stats()
    rows = [row.split("|") for row in torch.cuda.memory_summary().splitlines()]
    told = ("Allocated memory", "Active memory", "Requested memory", "GPU reserved memory")
    summary = {row[1].strip(): row[3].strip() for row in rows if len(row) > 5 and row[1].strip() in told}
    return {
        "stats": {kind: stats[f"{kind}.all.peak"] for kind in KINDS},
        "accelerator": {kind: same.get(f"{kind}.all.peak") for kind in KINDS},
        "max": [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()],
        "accelerator max": [torch.accelerator.max_memory_allocated(), torch.accelerator.max_memory_reserved()],
        "current": [torch.cuda.memory_allocated(), torch.accelerator.memory_allocated()],
        "summary": summary,
    }

def tell(when):
    print(json.dumps({when: readings()}), flush=True)

model, x, optimizer = model_and_input()
big = torch.empty(64 << 20, device="cuda")
del big
tell("loaded")
train(model, x, optimizer, 5)
tell("trained")
torch.cuda.reset_peak_memory_stats()
tell("reset")
train(model, x, optimizer, 5)
tell("trained again")
torch.accelerator.reset_peak_memory_stats()
tell("reset by the accelerator")
with torch.no_grad():
    model(x)
tell("evaluated")
atexit.register(tell, "at exit")
"""
)

PHASES = (
    TRAIN
    + """
highest = {}

def requested():
    return torch.cuda.memory_stats_as_nested_dict()["requested_bytes"]["all"]["peak"]

def ended(phase):
    highest[phase] = max(highest.get(phase, 0), requested())
    torch.cuda.reset_peak_memory_stats()

model, x, optimizer = model_and_input()
big = torch.empty(64 << 20, device="cuda")
del big
ended("load")
for _ in range(4):
    loss = model(x).square().mean()
    ended("forward")
    loss.backward()
    ended("backward")
    optimizer.step()
    ended("optimizer")
    optimizer.zero_grad()
    ended("zero_grad")
print(json.dumps(highest))
"""
)

LASTING = (
    TRAIN
    + """
model, x, optimizer = model_and_input()
cached = torch.empty(256 << 20, device="cuda")
del cached
until = time.monotonic() + 4
while time.monotonic() < until:
    train(model, x, optimizer, 10)
    torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
print(json.dumps({"used": total - free, "total": total, "reserved": torch.cuda.memory_reserved()}))
"""
)

OWN_FIGURE = """
import os

def own_figure():
    try:
        import pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:
        return None
    return next((process.usedGpuMemory for process in processes if process.pid == os.getpid()), None)

print(json.dumps(own_figure()))
"""

WITHOUT_WAITING = (
    TRAIN
    + "model, x, optimizer = model_and_input()\ntorch.cuda.set_sync_debug_mode('error')\ntrain(model, x, optimizer, 20)\n"
)

A_PART_THAT_WAITS = """
import torch
from gradtui.probe.gradients import grad_norms
norms = grad_norms._norms

def waits(gradients, wide):
    gradients[0][1].sum().item()
    return norms(gradients, wide)

grad_norms._norms = waits
"""


def run(
    source: str, folder: Path, *, watched: bool, may_fail: bool = False, **environment: str
) -> tuple[list[Any], dict[str, Any]]:
    """What the script prints, and the summary if it is watched. No part of gradtui may fail unless `may_fail`."""
    script, summary = folder / "script.py", folder / "summary.json"
    script.write_text(source)
    ours = ["-m", "gradtui", "--plain", "--summary", str(summary)] if watched else []
    done = fork_server.run(
        [sys.executable, *ours, str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(summary.read_text()) if watched else {}
    if not may_fail:
        assert {*told.get("problems", {})} <= {"NVML"}, (
            "an error of ours reaches nobody else: hooks keep it from the script"
        )
    return [json.loads(line) for line in done.stdout.splitlines()], told


def test_readings_of_script_equal_plain_run(tmp_path: Path) -> None:
    alone, _ = run(READINGS, tmp_path, watched=False)
    ours, _ = run(READINGS, tmp_path, watched=True)
    assert len(ours) == len(alone) == 7
    for mine, plain in zip(ours, alone):
        assert mine == plain


def test_phase_peaks_equal_script_measurements(tmp_path: Path) -> None:
    (highest,), summary = run(PHASES, tmp_path, watched=True)
    found = {phase: summary["phases"][phase]["bytes_peak"] for phase in highest}
    assert found == highest
    assert {phase: summary["phases"][phase]["peak_exact"] for phase in highest} == dict.fromkeys(highest, True)


def test_reset_of_peaks_by_script_costs_nothing(tmp_path: Path) -> None:
    _, resetting = run(PHASES, tmp_path, watched=True)
    _, leaving = run(PHASES.replace("    torch.cuda.reset_peak_memory_stats()\n", ""), tmp_path, watched=True)
    peaks = [{name: phase["bytes_peak"] for name, phase in told["phases"].items()} for told in (resetting, leaving)]
    for phase in ("load", "forward", "backward", "optimizer"):
        assert peaks[0][phase] == peaks[1][phase]


def test_nothing_waits_for_device_where_peaks_are_reset(tmp_path: Path) -> None:
    _, summary = run(WITHOUT_WAITING, tmp_path, watched=True)
    assert summary["steps"] == 20


def test_part_waiting_for_device_is_found(tmp_path: Path) -> None:
    _, summary = run(A_PART_THAT_WAITS + WITHOUT_WAITING, tmp_path, watched=True, may_fail=True)
    assert summary["steps"] == 20
    problem = summary["problems"]["gradient norms"]
    assert "synchroniz" in problem["error"]
    assert problem["failures"] == 3


def test_parts_add_up_to_what_driver_says(tmp_path: Path) -> None:
    (measured,), summary = run(LASTING, tmp_path, watched=True)
    memory = summary["device_memory"]
    assert memory is not None
    assert memory["reserved"] == memory["requested"] + memory["rounding"] + memory["cached"]
    # Of the GiB that was freed the training has taken some pieces.
    assert memory["cached"] > 512 << 20
    if memory["scope"] is None:
        pytest.skip("the driver reports nothing of this device")
    outside = memory["context"] if memory["scope"] == "process" else memory["outside"]
    assert memory["total"] == memory["reserved"] + outside
    # A CUDA context takes some hundred MiB, and never less than nothing.
    assert outside > 50 << 20
    assert memory["device_total"] >= measured["total"]
    assert abs(memory["device_used"] - measured["used"]) < 2 << 30


def test_process_holds_what_driver_says_of_it(tmp_path: Path) -> None:
    told, summary = run(LASTING + OWN_FIGURE, tmp_path, watched=True)
    memory = summary["device_memory"]
    own = told[-1]
    if own is None or own < memory["reserved"]:
        pytest.skip("the driver hides the numbers of processes here, or does not tell of this one")
    assert memory["scope"] == "process"
    assert abs(memory["total"] - own) < 64 << 20


def test_a_backend_that_counts_no_requests(tmp_path: Path) -> None:
    backend = "backend:cudaMallocAsync"
    _, summary = run(LASTING, tmp_path, watched=True, PYTORCH_ALLOC_CONF=backend, PYTORCH_CUDA_ALLOC_CONF=backend)
    memory = summary["device_memory"]
    assert (memory["requested"], memory["rounding"]) == (None, None)
    assert memory["allocated"] > 0
    total = summary["phases"]["forward"]["bytes_end"]["total"]
    assert total >= summary["phases"]["forward"]["bytes_end"]["parameters"] > 0


USED_ON_THE_OTHER = """
import pynvml
pynvml.nvmlInit()
other = pynvml.nvmlDeviceGetHandleByIndex(1)
print(json.dumps(sum(each.usedGpuMemory for each in pynvml.nvmlDeviceGetComputeRunningProcesses(other))))
"""


@pytest.mark.skipif(LIBRARIES is None and torch.cuda.device_count() < 2, reason="needs two devices")
def test_of_several_devices_each_is_told(tmp_path: Path) -> None:
    split = """
import time
import torch
from torch import nn

class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(64, 64).to("cuda:0"), nn.Linear(64, 1024).to("cuda:1")

    def forward(self, x):
        return self.large(self.small(x).to("cuda:1"))

model = Split()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
until = time.monotonic() + 2
while time.monotonic() < until:
    optimizer.zero_grad()
    model(torch.ones(8, 64, device="cuda:0")).sum().backward()
    optimizer.step()
"""
    _, summary = run(split, tmp_path, watched=True, FAKE_CUDA_MACHINE=machine(2))
    assert summary["ledger"] == "CUDA allocator of devices 0, 1"
    held = summary["phases"]["optimizer"]["bytes_end"]
    assert held["parameters"] == held["gradients"] == (64 * 1024 + 1024 + 64 * 64 + 64) * 4
    assert held["other"] >= 0
    first, second = summary["device_memory"]["devices"]
    assert (first["index"], second["index"]) == (0, 1)
    assert first["allocated"] > 0
    assert second["allocated"] == summary["device_memory"]["allocated"] > 0
    for device in (first, second):
        outside = device["context"] if device["scope"] == "process" else device["outside"]
        assert device["total"] == device["requested"] + device["rounding"] + device["cached"] + outside


@pytest.mark.skipif(LIBRARIES is None, reason="needs two devices of known contexts")
def test_unused_device_gets_no_context(tmp_path: Path) -> None:
    told, summary = run(LASTING + USED_ON_THE_OTHER, tmp_path, watched=True, FAKE_CUDA_MACHINE=machine(2))
    assert told[-1] == 0
    assert [device["index"] for device in summary["device_memory"]["devices"]] == [0]
