"""What is free on a device, against `cudaMemGetInfo`. Checked on a simulated device, which keeps 500 MiB for its driver."""

from __future__ import annotations

import pynvml
import pytest
import torch
from helpers.fakes import started
from helpers.simulated import RESERVED

from gradtui.probe.samplers.device import DeviceSampler
from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.free_memory import free_bytes
from gradtui.run.state.memory.devices import capacity
from gradtui.run.state.run_state import RunState

pytestmark = pytest.mark.fake_cuda


@pytest.fixture
def held() -> torch.Tensor:
    """Bytes in use, and 64 MiB that the allocator has reserved and not in use."""
    used = torch.empty(96 << 20, dtype=torch.uint8, device="cuda")
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    return used


def sampled() -> ev.DeviceSampled:
    return DeviceSampler(lambda: 1.0, lambda: 1, lambda: 0).sample()


def free_of(sample: ev.DeviceSampled) -> int | None:
    state = RunState()
    apply(state, started())
    apply(state, ev.DeviceFound(0.5, 0, torch.cuda.get_device_name(), "CUDA allocator"))
    apply(state, sample)
    return free_bytes(state)


def test_free_memory_includes_unused_by_allocator(held: torch.Tensor) -> None:
    sample = sampled()
    free, total = torch.cuda.mem_get_info()
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    assert cached >= 64 << 20
    assert sample.driver_reserved == RESERVED
    assert free_of(sample) == free + cached
    assert capacity(sample) == total == torch.cuda.get_device_properties(0).total_memory
    assert held.numel()


def test_the_first_version_counts_the_reserve_as_used(held: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    second = sampled()
    monkeypatch.delattr(pynvml, "nvmlMemory_v2")
    first = sampled()
    assert first.driver_reserved is None
    assert (first.device_used or 0) == (second.device_used or 0) + RESERVED
    assert free_of(first) == free_of(second)
    # The reserve is in no figure of its own then: the capacity is the whole device.
    assert capacity(first) == (capacity(second) or 0) + RESERVED
    assert held.numel()
