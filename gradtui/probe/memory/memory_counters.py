"""Read the total of allocated bytes from the CUDA caching allocator, glibc's malloc, or the process's resident size."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.memory import peak_counters
from gradtui.probe.memory.peak_counters import PeakCounters
from gradtui.probe.samplers.device import counter, counts_no_requests
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.system.host_memory import resident_bytes
from gradtui.system.own_memory import OWN


@dataclass(frozen=True, slots=True)
class Reading:
    """Allocated bytes now, and the peak since the run began if the allocator records one. None if unknown."""

    total: int | None
    peak: int | None
    since_last: bool = False
    """Whether `peak` is exact and counts from the previous reading (for the first reading, from the start of the process)."""
    devices: tuple[DeviceMemory, ...] = ()
    """Each device of several. `total` and `peak` are then sums, and `peak` is an upper bound."""


class MemoryCounter(Protocol):
    """A source of totals for tensors on one type of device."""

    name: str
    """Name of the source, as shown to the user."""
    device_type: str
    """The `torch.device.type` of the tensors it counts."""
    exact: bool

    def read(self) -> Reading:
        """Return the total now. Cheap enough for a phase boundary; no device synchronization."""
        ...


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


class _MallInfo2(ctypes.Structure):
    _fields_ = [
        ("before", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("between", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("after", ctypes.c_size_t * 2),
    ]


class MallocAllocator:
    """Reads the bytes that glibc's malloc has allocated since this object was made: heap in use plus separately mapped blocks.

    CPU tensors are allocated there, and so is everything else that the script allocates through malloc (NumPy arrays, large
    Python objects). What the viewer's thread has allocated since, and what a try keeps, is taken off. Raises OSError or
    AttributeError if the C library has no `mallinfo2` (glibc 2.33 and later have it).
    """

    name = "CPU malloc"
    device_type = "cpu"
    exact = True

    def __init__(self) -> None:
        # `CDLL` would release the GIL, and another thread could keep it for longer than the call takes.
        self._mallinfo2 = ctypes.PyDLL(None).mallinfo2
        self._mallinfo2.restype = _MallInfo2
        self._before = self._in_use()

    def read(self) -> Reading:
        """Return the bytes in use now; malloc records no peak."""
        return Reading(self._in_use() - self._before, None)

    def _in_use(self) -> int:
        info = self._mallinfo2()
        return int(info.uordblks + info.hblkhd) - OWN.grown - OWN.kept


class ResidentAllocator:
    """Reads the growth of the process's resident bytes: an estimate, since freed memory may stay resident."""

    name = "CPU resident"
    device_type = "cpu"
    exact = False

    def __init__(self) -> None:
        self._before = resident_bytes()

    def read(self) -> Reading:
        """Return the growth of resident bytes."""
        return Reading(resident_bytes() - self._before, None)


def device_allocator(devices: Sequence[torch.device]) -> MemoryCounter:
    """Return the source of totals for tensors on an accelerator: on several CUDA devices, or on one device of another type."""
    kind = devices[0].type
    return CudaAllocator(sorted(each.index or 0 for each in devices)) if kind == "cuda" else OtherDeviceCounter(kind)


def cpu_allocator() -> MemoryCounter:
    """Return the best source of totals for CPU tensors on this machine."""
    try:
        allocator = MallocAllocator()
    except (OSError, AttributeError, TypeError):
        return ResidentAllocator()
    # With a preloaded malloc (jemalloc, tcmalloc), glibc's own counters do not change.
    before = allocator.read().total or 0
    sample = torch.empty(1 << 20, dtype=torch.uint8, device="cpu")
    grown = (allocator.read().total or 0) - before
    return allocator if grown >= sample.nbytes else ResidentAllocator()
