"""Name the private functions of torch that read an allocator's statistics and reset its peaks.

As read in torch 2.13: every reader in Python (`memory_stats`, `memory_summary`, `max_memory_*`, `torch.accelerator.*`)
looks up these attributes of `torch._C` when it is called, and the two readers give the same counters the same names. The
allocator's snapshots, its history and the text of an OutOfMemoryError hold no peaks. The host's (pinned) memory and a
`MemPool` have no part in them. Resetting the accumulated statistics leaves peaks unchanged. Only C++ code that calls
`getDeviceStats` itself reads the unmodified counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Stats = dict[str, Any]
"""Names -> numbers, nested: `stats["requested_bytes"]["all"]["peak"]`."""


@dataclass(frozen=True)
class PeakFunctions:
    """The functions of `owner` that every reader and every reset of an allocator's statistics calls.

    All of them take the device's index. gradtui uses the first reader and the first reset.
    """

    owner: Any
    readers: tuple[str, ...]
    resetters: tuple[str, ...]


def cuda_peak_functions() -> PeakFunctions | None:
    """Return the functions of the CUDA caching allocator, None where torch has no CUDA or names them differently.

    `torch.cuda` and `torch.accelerator` read the same counters through functions of their own.
    """
    owner = torch._C
    if not (hasattr(owner, "_cuda_memoryStats") and hasattr(owner, "_cuda_resetPeakMemoryStats")):
        return None
    readers = [name for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats") if hasattr(owner, name)]
    resetters = [name for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats") if hasattr(owner, name)]
    return PeakFunctions(owner, tuple(readers), tuple(resetters))
