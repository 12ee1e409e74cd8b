"""A loop that waits for an idle and hot device at each read, on the simulated device."""

from __future__ import annotations

import pytest
from helpers.simulated import run_simulated

pytestmark = pytest.mark.fake_cuda

TRAIN = """
import sys
from time import monotonic
import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(10))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total, began = 0.0, monotonic()
synchronize = torch.cuda.synchronize
while monotonic() - began < float(sys.argv[2]):
    loss = model(torch.ones(8, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if sys.argv[1] == "item":
        total += loss.item()
    elif sys.argv[1] == "synchronize":
        torch.cuda.synchronize()
assert torch.cuda.synchronize is synchronize
"""


@pytest.mark.parametrize(
    ("read", "line"), [("item", "total += loss.item()"), ("synchronize", "torch.cuda.synchronize()")]
)
def test_a_read_that_waits_and_heat_are_found(read: str, line: str) -> None:
    done = run_simulated(TRAIN, read, "7.5", kernel_us=600, load=45, condition="87 412000 700000 990 1980 60")
    assert done.returncode == 0, done.stderr
    found = {each["rule"]: each["message"] for each in done.summary["findings"]}
    assert "waits for the device at 1 read a step, at script.py:" in found["GT702"]
    assert f"({line})" in found["GT702"]
    assert "heat" in found["GT709"]
    assert done.summary["step_time"]["verdict"].startswith("stalled by reads of values: ")
    load = done.summary["device_load"]
    assert (load["busy"], load["temperature"], load["watts"]) == (pytest.approx(0.45), 87, pytest.approx(412.0))


@pytest.mark.parametrize(("kernel_us", "is_held_up"), [(2, True), (400, False)])
def test_device_wait_is_known_without_nvml(kernel_us: int, is_held_up: bool) -> None:
    done = run_simulated(TRAIN, "nothing", "3", kernel_us=kernel_us, load=-1)
    assert done.returncode == 0, done.stderr
    assert done.summary["step_time"]["verdict"].startswith("host-bound") is is_held_up
    assert [each for each in done.summary["findings"] if each["rule"].startswith("GT7")] == []
