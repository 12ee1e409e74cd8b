"""Divide the memory in use on the CUDA device into parts that add up to the driver's figure, which exceeds torch's. Pure.

    driver's figure = outside of the allocator + cached + rounding + requested

where the categories of the memory breakdown and `other` divide `requested`, on the models' device. An unknown part is None, and
so is one that would be negative, because its figures contradict each other.
"""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol.events import DeviceFigures, DeviceSampled

PartName = Literal["requested", "rounding", "allocated", "cached", "context", "outside"]


@dataclass(frozen=True)
class DevicePart:
    """One part in bytes, None if unknown.

    - `requested`: the requested bytes; `rounding`: the excess of the blocks allocated for them; `allocated`: both together, if
      the allocator does not distinguish them.
    - `cached`: memory that torch has reserved from the driver and that is not in use.
    - `context`: memory of the process outside of torch's allocator: CUDA's context, libraries, NCCL.
    - `outside`: the same and all other processes, if the figure of this process is unknown.
    """

    name: PartName
    size: int | None


@dataclass(frozen=True)
class Reconciliation:
    """The driver's figure and its parts."""

    scope: Literal["process", "device"] | None
    """Whose memory `total` is: this process's, or all processes' (a container hides this process's); None if unknown."""
    total: int | None
    parts: tuple[DevicePart, ...]
    """In the order of a bar, beginning with the part that the memory breakdown explains."""
    other_processes: int | None
    """Bytes that other processes hold on the device."""

    def size(self, name: PartName) -> int | None:
        """Return the bytes of a part; None if it is unknown or not distinguished."""
        return next((part.size for part in self.parts if part.name == name), None)


def reconcile(sample: DeviceSampled | DeviceFigures | None) -> Reconciliation | None:
    """Divide the driver's figure of a sample into parts; None if no CUDA device is in use.

    A figure of the process below what its allocator alone holds is another process's, known to the driver by the number
    that this one has within a container.
    """
    if sample is None or sample.reserved is None:
        return None
    reserved = sample.reserved
    cached = DevicePart("cached", _difference(reserved, sample.allocated))
    inside = (*_allocated(sample), cached)
    context = _difference(sample.device_process, reserved)
    if context is not None:
        others = _difference(sample.device_used, sample.device_process)
        return Reconciliation("process", sample.device_process, (*inside, DevicePart("context", context)), others)
    outside = _difference(sample.device_used, reserved)
    if outside is not None:
        return Reconciliation("device", sample.device_used, (*inside, DevicePart("outside", outside)), None)
    return Reconciliation(None, None, (*inside, DevicePart("context", None)), None)


def _allocated(sample: DeviceSampled | DeviceFigures) -> tuple[DevicePart, ...]:
    rounding = _difference(sample.allocated, sample.requested)
    if rounding is None:
        return (DevicePart("allocated", sample.allocated),)
    return DevicePart("requested", sample.requested), DevicePart("rounding", rounding)


def _difference(whole: int | None, part: int | None) -> int | None:
    return whole - part if whole is not None and part is not None and whole >= part else None
