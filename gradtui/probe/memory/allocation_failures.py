"""Recognize exceptions that report a failed allocation, and parse their messages. Any thread.

Python and NumPy raise MemoryError. PyTorch raises `torch.OutOfMemoryError` for a device's allocator, and a bare RuntimeError
from the CPU's ("[enforce fail at alloc_cpu.cpp …] … DefaultCPUAllocator: can't allocate memory: you tried to allocate N
bytes"), from a driver ("CUDA error: out of memory"), from Metal ("MPS backend out of memory") and from cuBLAS's handle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

_DEVICE_ERROR: type[BaseException] | None = getattr(torch, "OutOfMemoryError", None) or getattr(
    torch.cuda, "OutOfMemoryError", None
)
_FAILED = re.compile(
    r"out of memory|(?:can't|cannot) allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE
)
_DEVICES = (
    ("cpu", "CPUAllocator"),
    ("cuda", "CUDA"),
    ("cuda", "CUBLAS"),
    ("mps", "MPS"),
    ("xpu", "XPU"),
    ("cuda", "HIP"),
)
_REQUESTED = re.compile(
    r"(?:tried to allocate|unable to allocate) (\d+(?:\.\d+)?) ?(bytes|[KMGTPE]?i?B)\b", re.IGNORECASE
)
_GPU = re.compile(r"\bGPU (\d+)")
_POWERS: dict[str, int] = {unit: 1 << 10 * power for power, unit in enumerate("bkmgtpe")}
_LONGEST = 400
"""Maximum number of characters of a message that are kept."""


@dataclass(frozen=True)
class AllocationFailure:
    """One failed allocation: the device (`cpu`, `cuda:1`), the message's first line, and the requested bytes if known."""

    device: str
    message: str
    requested: int | None


def allocation_failure(error: BaseException | None) -> AllocationFailure | None:
    """Return the failed allocation that `error` reports; None if it reports something else."""
    if isinstance(error, MemoryError):
        return _read(str(error), "cpu")
    if not isinstance(error, RuntimeError) or isinstance(error, RecursionError):
        return None
    text = str(error)
    if not (_FAILED.search(text) or (_DEVICE_ERROR is not None and isinstance(error, _DEVICE_ERROR))):
        return None
    kind = next((device for device, word in _DEVICES if word.lower() in text.lower()), "cuda")
    number = _GPU.search(text)
    return _read(text, f"{kind}:{number[1]}" if number is not None and kind != "cpu" else kind)


def _read(text: str, device: str) -> AllocationFailure:
    first_line = text.strip().partition("\n")[0]
    return AllocationFailure(device, first_line[:_LONGEST], _requested(text))


def _requested(text: str) -> int | None:
    found = _REQUESTED.search(text)
    if found is None:
        return None
    number, factor = found[1], _POWERS[found[2][0].lower()]
    # Converting a count above 2⁵³ to float would change it.
    return int(number) * factor if number.isdigit() else int(float(number) * factor)
