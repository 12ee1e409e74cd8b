"""An allocator's counters in the shape of torch's, without a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gradtui.probe.memory.peak_counters import PeakCounters
from gradtui.probe.torch_private.cuda import PeakFunctions

COUNTERS = (
    "allocation", "segment", "active", "inactive_split",
    "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
READERS = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
RESETTERS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


class FakeAllocator:
    """Counters in the shape in which `torch._C._cuda_memoryStats` returns them, behind functions of the same names."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.highest: dict[int, int] = {}
        self.ever: dict[int, int] = {}
        self.namespace = SimpleNamespace(
            _cuda_memoryStats=self.stats,
            _cuda_resetPeakMemoryStats=self.reset,
            _accelerator_getDeviceStats=self.stats,
            _accelerator_resetPeakStats=self.reset,
        )

    def functions(self) -> PeakFunctions:
        return PeakFunctions(self.namespace, READERS, RESETTERS)

    def protected(self) -> PeakCounters:
        counters = PeakCounters()
        counters.protect(self.functions())
        return counters

    def allocate(self, device: int, change: int) -> None:
        self.now[device] = max(0, self.now.get(device, 0) + change)
        self.ever[device] = self.ever.get(device, 0) + max(0, change)
        self.highest[device] = max(self.highest.get(device, 0), self.now[device])

    def stats(self, device: int) -> dict[str, Any]:
        if device > 1:
            raise RuntimeError("Invalid device argument")
        now, peak = self.now.get(device, 0), self.highest.get(device, 0)
        ever = self.ever.get(device, 0)

        def counter(unit: int) -> dict[str, int]:
            return {"current": unit * now, "peak": unit * peak, "allocated": unit * ever, "freed": unit * (ever - now)}

        pools = ("all", "small_pool", "large_pool")
        stats: dict[str, Any] = {name: {pool: counter(i + 1) for pool in pools} for i, name in enumerate(COUNTERS)}
        return stats | {"oversize_allocations": counter(20), "num_ooms": 0, "max_split_size": -1}

    def reset(self, device: int) -> None:
        if device > 1:
            raise RuntimeError("Invalid device argument")
        self.highest[device] = self.now.get(device, 0)
