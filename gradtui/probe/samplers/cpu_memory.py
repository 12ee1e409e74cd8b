"""Read the total of bytes that CPU tensors have from glibc's malloc, or from the process's resident size."""

from __future__ import annotations

import ctypes
from typing import Protocol

import torch

from gradtui.dataclass import dataclass
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

    def leave_out(self, since: Reading) -> None:
        """Let the total be that of this reading again: do not count what has been allocated since."""
        self._before += (self.read().total or 0) - (since.total or 0)

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

    def leave_out(self, since: Reading) -> None:
        """Let the total be that of this reading again: do not count what has become resident since."""
        self._before += (self.read().total or 0) - (since.total or 0)


def cpu_allocator() -> MallocAllocator | ResidentAllocator:
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
