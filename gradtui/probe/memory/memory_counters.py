"""Read the total of allocated bytes from the CUDA caching allocator, or from that of another accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradtui.probe.memory import peak_counters
from gradtui.probe.memory.peak_counters import PeakCounters
from gradtui.probe.samplers.cpu_memory import MemoryCounter, Reading
from gradtui.probe.samplers.device import counter, counts_no_requests
from gradtui.protocol.device_memory import DeviceMemory


class CudaAllocator:
    """Reads `requested_bytes` from the caching allocator, of the devices with these indexes: the bytes before rounding.

    The allocator maintains these counters anyway: nothing is launched or waited for. If the script's readings are protected,
    each reading by gradtui begins a new peak. Checked on a simulated device only.
    """

    device_type = "cuda"
    exact = True

    def __init__(self, indexes: Sequence[int] = (0,), peaks: PeakCounters | None = None) -> None:
        several = torch.cuda.device_count() > 1
        named = f"device{'s' if len(indexes) > 1 else ''} {', '.join(map(str, indexes))}"
        self.name = f"CUDA allocator of {named}" if several else "CUDA allocator"
        """Includes the indexes if the machine has several devices."""
        self._indexes = tuple(indexes)
        self._peaks = peaks if peaks is not None else peak_counters.of_this_process

    def read(self) -> Reading:
        """Return requested bytes and their peak; unknown if another allocator without statistics is in use."""
        readings = [self._read(index) for index in self._indexes]
        return readings[0] if len(readings) == 1 else _sum_of(self._indexes, readings)

    def _read(self, index: int) -> Reading:
        try:
            taken = self._peaks.take(index) if torch.cuda.is_initialized() else None
            stats = taken if taken is not None else torch.cuda.memory_stats_as_nested_dict(index)
        except RuntimeError:
            return Reading(None, None)
        requested = _requested(stats)
        return Reading(requested.get("current", 0), requested.get("peak", 0), since_last=taken is not None)


def _sum_of(indexes: Sequence[int], readings: Sequence[Reading]) -> Reading:
    since_last = all(reading.since_last for reading in readings)
    totals, peaks = [reading.total for reading in readings], [reading.peak for reading in readings]
    return Reading(
        None if None in totals else sum(total or 0 for total in totals),
        None if None in peaks else sum(peak or 0 for peak in peaks),
        since_last,
        # A peak of the run is none of the time since the previous reading.
        tuple(DeviceMemory(*each) for each in zip(indexes, totals, peaks if since_last else [None] * len(peaks))),
    )


def _requested(stats: dict[str, Any]) -> dict[str, int]:
    # If requests are not counted, allocated bytes are the same except for rounding.
    return counter(stats, "allocated" if counts_no_requests(stats) else "requested")


class OtherDeviceCounter:
    """Reads the bytes of the tensors on an Apple GPU, which has no peak counter. The totals of other devices stay unknown.

    Not yet confirmed on a device.
    """

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type
        self.exact = device_type == "mps"
        self.name = "MPS allocator" if self.exact else "not measured"

    def read(self) -> Reading:
        """Return the bytes of the tensors on the device, if they are known."""
        return Reading(torch.mps.current_allocated_memory() if self.exact else None, None)


def device_allocator(devices: Sequence[torch.device]) -> MemoryCounter:
    """Return the source of totals for tensors on an accelerator: on several CUDA devices, or on one device of another type."""
    kind = devices[0].type
    return CudaAllocator(sorted(each.index or 0 for each in devices)) if kind == "cuda" else OtherDeviceCounter(kind)
