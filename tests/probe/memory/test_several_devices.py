"""Models on several CUDA devices: totals are those of all devices, and each device has its own. Simulated devices."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated import Simulated, run_simulated

from gradtui.protocol.events import Event, MemoryMeasured, ModelsFound, StepMemoryMeasured, StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase
from gradtui.records.recording.reader import Recording

pytestmark = pytest.mark.fake_cuda

MIB = 1 << 20

SPLIT = """
import json, sys
import torch
from torch import nn

first, second, wide = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).to(first)
        self.second = nn.Sequential(nn.Linear(256, wide), nn.ReLU(), nn.Linear(wide, 16)).to(second)

    def forward(self, x):
        return self.second(self.first(x.to(first)).to(second))


def requested():
    counters = (torch.cuda.memory_stats_as_nested_dict(device)["requested_bytes"]["all"] for device in range(2))
    return [(each["current"], each["peak"]) for each in counters]


torch.manual_seed(0)
model = Split()
optimizer = torch.optim.Adam(model.parameters())
for step in range(1, 61):
    optimizer.zero_grad()
    loss = model(torch.ones(64, 256)).square().mean()
    if step == 47:
        torch.empty(50 << 20, dtype=torch.uint8, device=second)
    loss.backward()
    optimizer.step()
print(json.dumps(requested()))
"""


def recorded(folder: Path, script: str, *arguments: str, devices: int = 2) -> tuple[Simulated, list[Event]]:
    """Run a script on several devices. Return its run, and the events of it."""
    file = folder / "run.gtr"
    done = run_simulated(
        script, *arguments, folder=folder, options=("--budget", "100%", "--record", str(file)), devices=devices
    )
    assert done.returncode == 0, done.stderr
    return done, list(Recording(file).events())


def told_of(done: Simulated) -> tuple[list[int], list[int]]:
    """The requested bytes that the script has printed, and their peaks: of each device."""
    totals, peaks = zip(*done.told[-1])
    return list(totals), list(peaks)


@pytest.mark.parametrize("wide", [256, 1024], ids=["even", "uneven"])
def test_a_model_on_two_devices_counts_on_both(wide: int, tmp_path: Path) -> None:
    done, events = recorded(tmp_path, SPLIT, "cuda:0", "cuda:1", str(wide))
    totals, peaks = told_of(done)
    assert done.summary["ledger"] == "CUDA allocator of devices 0, 1"
    held = done.summary["phases"]["optimizer"]["bytes_end"]
    assert held["parameters"] == held["gradients"] == parameters(wide) * 4
    assert held["total"] == sum(totals)
    measured = [each for each in events if isinstance(each, MemoryMeasured) and each.step]
    steps = [each for event in events if isinstance(event, StepMemoryMeasured) for each in event.totals]
    assert measured
    for each in measured:
        assert [device.index for device in each.devices] == [0, 1]
        assert sum(device.total or 0 for device in each.devices) == each.held.total
        assert not each.peak_exact or sum(device.peak or 0 for device in each.devices) >= (each.peak or 0)
    assert [each.step for each in steps][-1] == 60
    # Every peak of every device, to the byte: no step need be sampled for it.
    seen = (*measured, *steps)
    assert [max(each.devices[at].peak or 0 for each in seen if each.devices) for at in (0, 1)] == peaks
    assert peaks[1] > 50 * MIB
    assert done.summary["memory"]["peak"]["bytes"] <= sum(peaks)
    (found,) = (event for event in events if isinstance(event, ModelsFound))
    assert {(info.path.partition(".")[0], info.device) for info in found.parameters} == {("first", 0), ("second", 1)}


def parameters(wide: int) -> int:
    return 4 * (256 * 256 + 256) + 256 * wide + wide + wide * 16 + 16


def test_profile_sums_all_devices_over_time(tmp_path: Path) -> None:
    done, events = recorded(tmp_path, SPLIT, "cuda:0", "cuda:1", "512")
    profiles = [each for each in events if isinstance(each, StepMemoryProfiled)]
    assert profiles
    totals, _ = told_of(done)
    optimizer = [each for each in events if isinstance(each, MemoryMeasured) and each.phase is Phase.OPTIMIZER]
    for each in profiles:
        assert each.curve[-1] == sum(totals)
        # No device alone is as high, and no sum of peaks is lower.
        phases = [one for one in events if isinstance(one, MemoryMeasured) and one.step == each.step and one.step]
        assert max(totals) < each.peak <= max(one.peak or 0 for one in phases)
        assert {held.module for held in each.holdings if held.kind == "parameters"} >= {2, 7}
    assert optimizer[-1].held.parameters == parameters(512) * 4


def test_single_later_device_is_told_as_one(tmp_path: Path) -> None:
    done, events = recorded(tmp_path, SPLIT, "cuda:1", "cuda:1", "256")
    totals, _ = told_of(done)
    assert done.summary["ledger"] == "CUDA allocator of device 1"
    assert done.summary["phases"]["optimizer"]["bytes_end"]["total"] == totals[1]
    steps = [each for event in events if isinstance(event, StepMemoryMeasured) for each in event.totals]
    assert not any(each.devices for each in (*steps, *(one for one in events if isinstance(one, MemoryMeasured))))


@pytest.mark.parametrize("where", [("cuda:0", "cpu"), ("cpu", "cuda:1")], ids=["first", "last"])
def test_model_on_device_and_host_counts_on_device(where: tuple[str, str], tmp_path: Path) -> None:
    done, _ = recorded(tmp_path, SPLIT, *where, "256")
    totals, _ = told_of(done)
    index = int(where[0] == "cpu")
    assert done.summary["ledger"] == f"CUDA allocator of device {index}"
    held = done.summary["phases"]["optimizer"]["bytes_end"]
    assert held["total"] == totals[index]
    assert held["offload_outside"]
    assert held["offloaded"] > 0


MAPPED = """
import json, sys
import torch
from accelerate import cpu_offload, dispatch_model
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(4)), nn.Linear(128, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


places = json.loads(sys.argv[1])
model = Body()
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.startswith(("blocks.3", "head")))
if places:
    model = dispatch_model(model, places, main_device=0, offload_dir="offloaded")
else:
    model.requires_grad_(False)
    cpu_offload(model, torch.device("cuda:0"))
prompt = nn.Parameter(torch.zeros(32, 128, device="cuda:0"))
optimizer = torch.optim.Adam([*filter(lambda each: each.requires_grad, model.parameters()), prompt])
for step in range(30):
    optimizer.zero_grad()
    model(prompt + 1).square().mean().backward()
    optimizer.step()
counters = (torch.cuda.memory_stats_as_nested_dict(device)["requested_bytes"]["all"] for device in range(2))
print(json.dumps([(each["current"], each["peak"]) for each in counters]))
"""
BLOCK = (128 * 512 + 512 + 512 * 128 + 128) * 4
MAPS = {
    "two devices": {"blocks.0": 0, "blocks.1": 0, "blocks.2": 1, "blocks.3": 1, "head": 1},
    "cpu": {"blocks.0": 0, "blocks.1": "cpu", "blocks.2": "cpu", "blocks.3": 1, "head": 1},
    "disk": {"blocks.0": 0, "blocks.1": "disk", "blocks.2": "cpu", "blocks.3": 1, "head": 1},
}


@pytest.mark.skipif(find_spec("accelerate") is None, reason="no accelerate for this version of Python")
@pytest.mark.parametrize("name", MAPS)
def test_model_with_device_map_counts_on_devices(name: str, tmp_path: Path) -> None:
    places: dict[str, Any] = MAPS[name]
    plain = run_simulated(MAPPED, json.dumps(places), watched=False, folder=tmp_path, devices=2)
    done, events = recorded(tmp_path, MAPPED, json.dumps(places))
    assert done.told == plain.told
    totals, peaks = told_of(done)
    assert done.summary["ledger"] == "CUDA allocator of devices 0, 1"
    held = done.summary["phases"]["optimizer"]["bytes_end"]
    there = sum(place in (0, 1) for block, place in places.items() if block != "head")
    assert held["parameters"] == there * BLOCK + (128 * 8 + 8 + 32 * 128) * 4
    assert held["total"] == sum(totals)
    assert held["other"] >= 0
    found = [each for event in events if isinstance(event, StepMemoryMeasured) for each in event.totals]
    found_peaks = [max(each.devices[at].peak or 0 for each in found if each.devices) for at in (0, 1)]
    assert found_peaks == peaks
    assert not done.summary["problems"]


@pytest.mark.skipif(find_spec("accelerate") is None, reason="no accelerate for this version of Python")
def test_offloaded_model_counts_where_it_runs(tmp_path: Path) -> None:
    done, _ = recorded(tmp_path, MAPPED, "{}", devices=2)
    totals, _ = told_of(done)
    assert done.summary["ledger"] == "CUDA allocator of device 0"
    assert done.summary["phases"]["optimizer"]["bytes_end"]["total"] == totals[0]
