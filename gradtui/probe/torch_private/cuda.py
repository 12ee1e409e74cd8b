"""Use CUDA functions that torch does not promise to keep: captures of graphs, the out-of-memory observer, the snapshot, and
the functions that read an allocator's statistics and reset its peaks.

While a CUDA graph is captured, gradtui must not query events, launch kernels, copy or allocate: `cudaEventQuery` and
`cudaMalloc` invalidate a capture in its default mode, on whatever thread they are called, and a kernel that gradtui launches
on the captured stream would become part of the script's graph. Any thread. Checked on a simulated device only.

As read in torch 2.13: every reader in Python (`memory_stats`, `memory_summary`, `max_memory_*`, `torch.accelerator.*`)
looks up these attributes of `torch._C` when it is called, and the two readers give the same counters the same names. The
allocator's snapshots, its history and the text of an OutOfMemoryError hold no peaks. The host's (pinned) memory and a
`MemPool` have no part in them. Resetting the accumulated statistics leaves peaks unchanged. Only C++ code that calls
`getDeviceStats` itself reads the unmodified counters.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import torch

from gradtui.dataclass import dataclass

open_captures: weakref.WeakSet[Any] = weakref.WeakSet()
"""The graphs whose `capture_begin` was called and whose `capture_end` was not (`cuda_graphs.py` keeps this up to date)."""


def is_capturing() -> bool:
    """Return whether a graph is being captured through torch on any stream, or on the current stream. Waits for nothing."""
    return bool(open_captures) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


Observer = Callable[[int, int, int, int], None]
"""Called as (device, bytes requested, bytes of the device, bytes free on it), on the thread whose allocation failed."""


def observe_failed_allocations(observer: Observer) -> None:
    """Call `observer` at each failed allocation, before the exception is raised, for the rest of the process.

    torch calls it without the allocator's lock, after all its attempts to free memory (CUDACachingAllocator.cpp). It cannot
    be removed again, and it is also called where torch itself retries with less memory, as cuDNN's choice of an algorithm
    does. Attaching would initialise CUDA, which the script must be free to do itself, when it likes. So the observer is
    attached only after the script has done so.
    """
    attach: Callable[[Observer], None] | None = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    call_when_ready: Callable[[Callable[[], None]], None] | None = getattr(torch.cuda, "_lazy_call", None)
    if attach is None or call_when_ready is None:
        return

    def attach_it() -> None:
        # An allocator of another kind (cudaMallocAsync, a pluggable one) has no observers.
        with contextlib.suppress(RuntimeError):
            attach(observer)

    call_when_ready(attach_it)


def allocator_snapshot() -> dict[str, Any] | None:
    """Return the caching allocator's state, as `torch.cuda.memory._dump_snapshot` would pickle it.

    Returns None where torch has no snapshot.
    """
    take: Callable[[], dict[str, Any]] | None = getattr(torch.cuda.memory, "_snapshot", None)
    return take() if take is not None else None


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
