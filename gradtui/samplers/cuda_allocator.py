"""Read the counters of torch's caching allocator for one CUDA device. Any thread; no synchronisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class AllocatorReading:
    """Current and peak bytes; None where the allocator does not report them.

    `requested` are the requested bytes, `allocated` the blocks allocated for them (rounded up), `reserved` the memory reserved
    from the driver. The peaks are those that the script would read.
    """

    requested: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    requested_peak: int | None = None
    allocated_peak: int | None = None
    reserved_peak: int | None = None


def read_allocator(index: int) -> AllocatorReading:
    """Read the counters of the device with torch's index `index`. Not yet confirmed on a device."""
    try:
        stats = torch.cuda.memory_stats_as_nested_dict(index)
    except RuntimeError:
        # Another allocator replaced it (`change_current_allocator`), and keeps no statistics.
        return AllocatorReading()
    requested, allocated, reserved = (counter(stats, name) for name in ("requested", "allocated", "reserved"))
    if counts_no_requests(stats):
        requested = {}
    return AllocatorReading(
        *(each.get("current") for each in (requested, allocated, reserved)),
        *(each.get("peak") for each in (requested, allocated, reserved)),
    )


def counter(stats: dict[str, Any], kind: str, pool: str = "all") -> dict[str, int]:
    """Return one counter of a device's nested statistics: `current`, `peak`, `allocated`, `freed`."""
    found: dict[str, int] = stats.get(f"{kind}_bytes", {}).get(pool, {})
    return found


def counts_no_requests(stats: dict[str, Any]) -> bool:
    """Return whether the backend is `cudaMallocAsync`, which leaves the counter of requested bytes at zero."""
    return not counter(stats, "requested").get("peak") and bool(counter(stats, "allocated").get("peak"))
