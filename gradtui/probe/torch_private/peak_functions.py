"""The names torch does not promise to keep through which an allocator's statistics are read and its peaks reset.

As read in torch 2.13: every reader in Python (`memory_stats`, `memory_summary`, `max_memory_*`, `torch.accelerator.*`) looks
these attributes of `torch._C` up when it is called, and the two readers name the same counters alike. The allocator's
snapshots, its history and the text of an OutOfMemoryError hold no peaks, the host's (pinned) memory and a `MemPool` have no
part in them, and resetting the accumulated statistics leaves peaks alone. Only C++ code that asks `getDeviceStats` itself sees
the counters as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Stats = dict[str, Any]
"""Names -> numbers, nested: `stats["requested_bytes"]["all"]["peak"]`."""


@dataclass(frozen=True)
class PeakFunctions:
    """The functions of `owner` that every reader and every reset of an allocator's statistics goes through.

    All of them take the device's number. The first reader and the first reset are those that are used by us.
    """

    owner: Any
    readers: tuple[str, ...]
    resetters: tuple[str, ...]

    def originals(self) -> tuple[list[Callable[[int], Stats]], list[Callable[[int], None]]]:
        """Readers and resets as they are now."""
        return [getattr(self.owner, name) for name in self.readers], [getattr(self.owner, n) for n in self.resetters]


def cuda_peak_functions() -> PeakFunctions | None:
    """Those of the CUDA caching allocator, None where torch has no CUDA or calls them otherwise.

    `torch.cuda` and `torch.accelerator` read one and the same counters through functions of their own.
    """
    owner = torch._C
    if not (hasattr(owner, "_cuda_memoryStats") and hasattr(owner, "_cuda_resetPeakMemoryStats")):
        return None
    readers = [name for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats") if hasattr(owner, name)]
    resetters = [name for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats") if hasattr(owner, name)]
    return PeakFunctions(owner, tuple(readers), tuple(resetters))
