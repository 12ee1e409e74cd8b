"""Where the total of allocated bytes comes from: the CUDA caching allocator, glibc's malloc, or the process's resident size."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol

import psutil
import torch

from gradtui.probe.memory import peak_counters
from gradtui.probe.memory.peak_counters import PeakCounters
from gradtui.samplers.cuda_allocator import counter, counts_no_requests


@dataclass(frozen=True, slots=True)
class Reading:
    """Allocated bytes now, and the highest since the run began where the allocator keeps that. None where not known."""

    total: int | None
    peak: int | None
    since_last: bool = False
    """`peak` is the highest since the reading before (the first time: since the process began), and exact."""


class MemoryCounter(Protocol):
    """A source of totals for tensors on one kind of device."""

    name: str
    """Shown as the source of the figures."""
    device_type: str
    """The `torch.device.type` of the tensors it holds."""
    exact: bool

    def read(self) -> Reading:
        """The total now; cheap enough for a phase boundary, no device synchronisation."""
        ...


class CudaAllocator:
    """`requested_bytes` of one device in the caching allocator: what was asked for, before rounding.

    These are counters that the allocator keeps anyway: nothing is launched or waited for. Where the script's readings are
    protected, each reading of ours begins a new peak. With several devices in use this is the one that most of the models'
    bytes are on: the peaks of several could not be added up, since each may have been reached at another time. Not yet
    confirmed on a device.
    """

    device_type = "cuda"
    exact = True

    def __init__(self, index: int = 0, peaks: PeakCounters | None = None) -> None:
        several = torch.cuda.device_count() > 1
        self.name = f"CUDA allocator of device {index}" if several else "CUDA allocator"
        """With the device's number where there are several."""
        self._index = index
        self._peaks = peaks if peaks is not None else peak_counters.of_this_process

    def read(self) -> Reading:
        """Requested bytes now and at most; unknown where another allocator was put in its place that keeps no statistics."""
        try:
            taken = self._peaks.take(self._index) if torch.cuda.is_initialized() else None
            stats = taken if taken is not None else torch.cuda.memory_stats_as_nested_dict(self._index)
        except RuntimeError:
            return Reading(None, None)
        # Where requests are not counted, what is allocated is the same but for its rounding.
        requested = counter(stats, "allocated" if counts_no_requests(stats) else "requested")
        return Reading(requested.get("current", 0), requested.get("peak", 0), since_last=taken is not None)


class MetalAllocator:
    """What torch has allocated on an Apple GPU; it keeps no peak. Not yet confirmed on a device."""

    name = "MPS allocator"
    device_type = "mps"
    exact = True

    def read(self) -> Reading:
        """Bytes of the tensors there now."""
        return Reading(torch.mps.current_allocated_memory(), None)


class UnmeasuredAllocator:
    """For tensors on a kind of device whose totals nobody here knows how to read: they stay unknown."""

    name = "not measured"
    exact = False

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type

    def read(self) -> Reading:
        """Nothing."""
        return Reading(None, None)


class _MallInfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class MallocAllocator:
    """Bytes handed out by glibc's malloc since this object was made: heap in use plus blocks mapped on their own.

    CPU tensors live there, and so does whatever else the script allocates through malloc (NumPy arrays, large Python
    objects). Raises OSError or AttributeError where the C library has no `mallinfo2` (glibc 2.33 and later have it).
    """

    name = "CPU malloc"
    device_type = "cpu"
    exact = True

    def __init__(self) -> None:
        self._mallinfo2 = ctypes.CDLL(None).mallinfo2
        self._mallinfo2.restype = _MallInfo2
        self._before = self._in_use()

    def read(self) -> Reading:
        """Bytes in use now; malloc keeps no peak."""
        return Reading(self._in_use() - self._before, None)

    def _in_use(self) -> int:
        info = self._mallinfo2()
        return int(info.uordblks + info.hblkhd)


class ResidentAllocator:
    """Resident bytes of the process beyond those it began with: an estimate, since freed memory may stay resident."""

    name = "CPU resident"
    device_type = "cpu"
    exact = False

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss

    def read(self) -> Reading:
        """Resident bytes now."""
        return Reading(self._process.memory_info().rss - self._before, None)


def device_allocator(device: torch.device) -> MemoryCounter:
    """The source of totals for tensors on an accelerator."""
    if device.type == "cuda":
        return CudaAllocator(device.index or 0)
    return MetalAllocator() if device.type == "mps" else UnmeasuredAllocator(device.type)


def cpu_allocator() -> MemoryCounter:
    """The best source of totals for CPU tensors on this machine."""
    try:
        allocator = MallocAllocator()
    except (OSError, AttributeError, TypeError):
        return ResidentAllocator()
    # A preloaded malloc (jemalloc, tcmalloc) leaves glibc's own counters standing still.
    before = allocator.read().total or 0
    sample = torch.empty(1 << 20, dtype=torch.uint8, device="cpu")
    grown = (allocator.read().total or 0) - before
    return allocator if grown >= sample.nbytes else ResidentAllocator()
