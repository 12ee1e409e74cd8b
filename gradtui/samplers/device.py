"""Memory and load of the host and, where there is one, of the CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from gradtui.protocol.events import DeviceSampled
from gradtui.samplers.nvml import DeviceReading, Nvml


@dataclass(frozen=True)
class _Allocator:
    allocated: int | None = None
    reserved: int | None = None


class DeviceSampler:
    """Host memory of this process, and of one CUDA device the allocator's totals and what NVML says.

    `index` tells torch's number of the device that most of the models are on.
    """

    period_s = 1.0

    def __init__(self, at: Callable[[], float], step: Callable[[], int], index: Callable[[], int]) -> None:
        self._at = at
        self._step = step
        self._index = index
        self._process = psutil.Process()
        self._nvml = Nvml.open()

    def sample(self) -> DeviceSampled:
        """One reading. Touches CUDA only once the script has initialised it, so that no context is made by looking."""
        memory = self._process.memory_info()
        in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        index = self._index()
        allocator = _allocator(index) if in_use else _Allocator()
        device = self._nvml.read(index) if self._nvml is not None and in_use else DeviceReading()
        return DeviceSampled(
            at=self._at(),
            step=self._step(),
            source=device.name or "host",
            host_rss=memory.rss,
            host_total=psutil.virtual_memory().total,
            device_used=device.used,
            device_total=device.total,
            device_process=device.process,
            allocated=allocator.allocated,
            reserved=allocator.reserved,
            utilisation=device.utilisation,
        )


def _allocator(index: int) -> _Allocator:
    stats = torch.cuda.memory_stats_as_nested_dict(index)
    return _Allocator(
        stats.get("allocated_bytes", {}).get("all", {}).get("current"),
        stats.get("reserved_bytes", {}).get("all", {}).get("current"),
    )
