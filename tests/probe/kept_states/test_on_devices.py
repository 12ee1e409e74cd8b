"""Kept states of models on CUDA devices: bytes and random states of each device come back, and a copy needs no memory there.

Simulated devices: kernels compute nothing, copies between host and device copy. So the script writes what it trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated import Simulated, run_simulated

pytestmark = pytest.mark.fake_cuda

SCRIPT = """
import hashlib, json, sys
import torch
from torch import nn

torch.backends.cudnn.enabled = False
devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(64, 64).to(each) for each in devices)
        # Its strides are not those of a contiguous tensor: a copy must not make it contiguous on the device.
        self.image = nn.Parameter(torch.zeros(2, 3, 256, 256).to(devices[0], memory_format=torch.channels_last))
        self.short = nn.Parameter(torch.zeros(65, dtype=torch.bfloat16, device=devices[-1]))

    def forward(self, x):
        # Commands of the boundary have just been carried out.
        memory.append([
            [torch.cuda.memory_reserved(each), torch.cuda.max_memory_reserved(each), torch.cuda.max_memory_allocated(each)]
            for each in devices
        ])
        for part, device in zip(self.parts, devices):
            x = part(x.to(device))
        return x.square().mean() + (self.image.sum() * self.short.sum().to(devices[0])).to(x.device)


def tensors():
    yield from model.parameters()
    for state in optimizer.state.values():
        yield from (each for each in state.values() if each.is_cuda)


def told():
    values = [hashlib.md5(each.detach().cpu().double().contiguous().numpy().tobytes()).hexdigest()[:8] for each in held]
    random = [hashlib.md5(torch.cuda.get_rng_state(each).numpy().tobytes()).hexdigest()[:8] for each in devices]
    return values, random


torch.manual_seed(0)
model = Parts()
optimizer = torch.optim.Adam(model.parameters())
x = torch.ones(4, 64)
memory, held = [], []
for step in range(14):
    optimizer.zero_grad()
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    loss = model(x)
    held = [each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each for each in tensors()]
    print(json.dumps([step, *told()]))
    loss.backward()
    optimizer.step()
    for number, each in enumerate(tensors()):
        value = torch.full(each.shape, step + number / 64, dtype=each.dtype)
        with torch.no_grad():
            each.copy_(value.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else value)
    for device in devices:
        torch.rand(3, device=device)
print(json.dumps({"memory": memory}))
"""

KEEP = '[[do]]\nstep = 5\ncommand = "keep_state"\n'
BACK = '[[do]]\nstep = 9\ncommand = "return_to_state"\nto_step = 5\n'


def run(folder: Path, *entries: str, devices: int = 1, options: Sequence[str] = ()) -> Simulated:
    schedule = folder / "schedule.toml"
    schedule.write_text("version = 1\n" + "".join(entries), encoding="utf-8")
    words = ("--schedule", str(schedule), *options) if entries else options
    done = run_simulated(SCRIPT, options=words, folder=folder, devices=devices)
    assert done.returncode == 0, done.stderr
    return done


def values(done: Simulated) -> list[Any]:
    return [told[1:] for told in done.told if isinstance(told, list)]


@pytest.mark.parametrize("devices", [1, 2])
def test_bytes_and_random_states_of_devices_return(devices: int, tmp_path: Path) -> None:
    alone, back = run(tmp_path, devices=devices), run(tmp_path, KEEP, BACK, devices=devices)
    plain, found = values(alone), values(back)
    assert len(plain[5][1]) == devices
    assert plain[9] != plain[5]
    assert found[:9] == plain[:9]
    assert found[9] == plain[5]
    # From there the generators give the same numbers, and the script has written others.
    assert [random for _, random in found[9:]] == [random for _, random in plain[5:10]]
    # Neither the copy nor the return takes memory of a device.
    assert back.told[-1] == alone.told[-1]
    (made,) = back.summary["returns"]
    assert (made["step"], made["to_step"], made["complete"]) == (9, 5, True)


@pytest.mark.parametrize("devices", [1, 2])
def test_kept_state_takes_no_memory_of_device(devices: int, tmp_path: Path) -> None:
    plain, kept = run(tmp_path, devices=devices), run(tmp_path, KEEP, KEEP.replace("5", "7"), devices=devices)
    assert [each["text"].partition(":")[0] for each in kept.summary["interventions"]] == []
    assert "kept step 5 as state 1" in kept.stderr
    assert "kept step 7 as state 2" in kept.stderr
    assert kept.told[-1] == plain.told[-1]
    assert values(kept) == values(plain)
