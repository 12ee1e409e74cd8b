"""Why the driver says more than torch: what is held on the CUDA device, in parts that add up to the driver's figure. Pure.

    driver's figure = outside of the allocator + cached + rounding + requested

where `requested` is what the categories of the ledger and `other` divide up, on the models' device. A part that is not known is
None, and so is one that would be negative: figures that contradict each other say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradtui.protocol.events import DeviceSampled

PartName = Literal["requested", "rounding", "allocated", "cached", "context", "outside"]


@dataclass(frozen=True)
class DevicePart:
    """One part; bytes, None where not known.

    - `requested`: what was asked for; `rounding`: what the blocks handed out for it have beyond that;
      `allocated`: both in one, where the allocator does not tell them apart.
    - `cached`: what torch has taken from the driver and nobody uses.
    - `context`: what the process holds outside of torch's allocator: CUDA's context, libraries, NCCL.
    - `outside`: the same and all other processes, where this one's figure is not known.
    """

    name: PartName
    size: int | None


@dataclass(frozen=True)
class Reconciliation:
    """What the driver says, and what it is made of."""

    scope: Literal["process", "device"] | None
    """Whose memory `total` is: this process's, or all processes' (a container hides our number); None if neither is known."""
    total: int | None
    parts: tuple[DevicePart, ...]
    """In the order of a bar, from what the ledger knows outwards."""
    other_processes: int | None
    """What others hold on the device."""

    def size(self, name: PartName) -> int | None:
        """The bytes of a part; None where it is not known or not told apart."""
        return next((part.size for part in self.parts if part.name == name), None)


def reconcile(sample: DeviceSampled | None) -> Reconciliation | None:
    """Take the driver's figure of a sample apart; None where there is no CUDA device in use.

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


def _allocated(sample: DeviceSampled) -> tuple[DevicePart, ...]:
    rounding = _difference(sample.allocated, sample.requested)
    if rounding is None:
        return (DevicePart("allocated", sample.allocated),)
    return DevicePart("requested", sample.requested), DevicePart("rounding", rounding)


def _difference(whole: int | None, part: int | None) -> int | None:
    return whole - part if whole is not None and part is not None and whole >= part else None
