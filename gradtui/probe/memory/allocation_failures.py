"""Recognize exceptions that report a failed allocation, parse their messages, and report each of them once. Any thread.

Python and NumPy raise MemoryError. PyTorch raises `torch.OutOfMemoryError` for a device's allocator, and a bare RuntimeError
from the CPU's ("[enforce fail at alloc_cpu.cpp …] … DefaultCPUAllocator: can't allocate memory: you tried to allocate N
bytes"), from a driver ("CUDA error: out of memory"), from Metal ("MPS backend out of memory") and from cuBLAS's handle.

An exception passes several wrappers, and must be reported once. Nothing is attached to the script's exceptions, and none is
kept, even for a moment: that would keep all the tensors in its frames. Exceptions of classes that torch or the script defines
support weak references. Those of Python's built-in classes do not (the CPU's allocator raises a bare RuntimeError): for these
the texts are kept, since no other exception has the very same tuple of them while it is kept.
"""

from __future__ import annotations

import re
import weakref
from collections import deque

import torch

from gradtui.dataclass import dataclass

_FAILED = re.compile(
    r"out of memory|(?:can't|cannot) allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE
)
_DEVICES = {"cpuallocator": "cpu", "cuda": "cuda", "cublas": "cuda", "mps": "mps", "xpu": "xpu", "hip": "cuda"}
"""A word of the message in lower case -> the type of the device; the first one that occurs counts."""
_REQUESTED = re.compile(
    r"(?:tried to allocate|unable to allocate) (\d+(?:\.\d+)?) ?(bytes|[KMGTPE]?i?B)\b", re.IGNORECASE
)
_GPU = re.compile(r"\bGPU (\d+)")
_POWERS: dict[str, int] = {unit: 1 << 10 * power for power, unit in enumerate("bkmgtpe")}
_MAX = 400
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
    if not (_FAILED.search(text) or isinstance(error, torch.cuda.OutOfMemoryError)):
        return None
    kind = next((device for word, device in _DEVICES.items() if word in text.lower()), "cuda")
    number = _GPU.search(text)
    return _read(text, f"{kind}:{number[1]}" if number is not None and kind != "cpu" else kind)


def _read(text: str, device: str) -> AllocationFailure:
    first_line = text.strip().partition("\n")[0]
    return AllocationFailure(device, first_line[:_MAX], _requested(text))


def _requested(text: str) -> int | None:
    found = _REQUESTED.search(text)
    if found is None:
        return None
    number, factor = found[1], _POWERS[found[2][0].lower()]
    # Converting a count above 2⁵³ to float would change it.
    return int(number) * factor if number.isdigit() else int(float(number) * factor)


_KEPT = 8
"""More than can be in flight at once: one for each thread, and the exception it was raised from."""


class ReportedFailures:
    """The most recently reported exceptions, with whether each got a full report."""

    def __init__(self) -> None:
        self._reported: deque[tuple[object, int, bool]] = deque(maxlen=_KEPT)

    def note(self, error: BaseException, *, is_full: bool) -> None:
        """Record that this exception was reported."""
        others = (each for each in tuple(self._reported) if not _is_same(each[0], each[1], error))
        self._reported = deque((*others, (_trace_of(error), id(error), is_full)), maxlen=_KEPT)

    def is_full(self, error: BaseException) -> bool | None:
        """Return whether the exception got a full report; None if it was not reported."""
        return next((is_full for trace, name, is_full in tuple(self._reported) if _is_same(trace, name, error)), None)


def _trace_of(error: BaseException) -> object:
    """Return what distinguishes this exception from every other one that exists or will exist while this is kept."""
    try:
        return weakref.ref(error)
    except TypeError:
        texts = error.args
        # All exceptions without arguments share one empty tuple.
        return texts if texts and all(type(text) is str for text in texts) else _raised_at(error)


def _is_same(trace: object, name: int, error: BaseException) -> bool:
    if isinstance(trace, weakref.ref):
        return trace() is error
    if name != id(error):
        return False
    return trace == _raised_at(error) if isinstance(trace, int) else trace is error.args


def _raised_at(error: BaseException) -> int:
    """Return the `id()` of the innermost traceback entry: the best identity available for a bare MemoryError."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    return id(entry)
