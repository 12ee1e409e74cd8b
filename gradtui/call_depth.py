"""Exclude gradtui's own calls from CPython's call counter, so that a script recurses as deep as under plain python.

The counter is an int in the state of each thread (`PyThreadState`). Python 3.10 counts up; later versions count down from the
recursion limit. `sys.getrecursionlimit()` returns the same as without gradtui. If `_find` does not find exactly one such int,
the counter stays unchanged. Main thread only, because its state lives as long as the process; standard library only.
"""

from __future__ import annotations

import functools
import sys
import threading
from array import array
from threading import get_ident
from typing import Final

COUNTS_DOWN = sys.version_info >= (3, 11)

LEAVE_OUT: Final = 1 if COUNTS_DOWN else -1
"""The number to add to the count to exclude one call, and to subtract when that call ends."""

_FIELDS = 32
"""Number of ints searched. The count is among the first ints of a thread's state: at 7 to 11 in Python 3.10 to 3.13."""


class CallCount:
    """The call count of one thread.

    Attributes:
        thread: the only thread that may change the count; 0 if no count is known.
        cell: the count itself. Adding `LEAVE_OUT` to it for each excluded call needs no function call.
        spare: the cell that any other thread changes instead.
    """

    def __init__(self, thread: int, cell: memoryview) -> None:
        self.thread = thread
        self.cell = cell
        self.spare = _ineffective()

    def in_use(self) -> int:
        """Return the number of active calls, the caller's included."""
        count: int = self.cell[0]
        return (sys.getrecursionlimit() - count if COUNTS_DOWN else count) - 1


@functools.cache
def of_main_thread() -> CallCount:
    """Return the count of the main thread; one without effect if it is not found or another thread calls this first."""
    cell = _find() if threading.current_thread() is threading.main_thread() else None
    return CallCount(0, _ineffective()) if cell is None else CallCount(get_ident(), cell)


def _ineffective() -> memoryview:
    return memoryview(array("i", [0]))


def calls_below_script(count: CallCount, *, by_runpy: bool) -> int:
    """Return how many more calls there are below the caller's `exec` of a script than below a script that python runs.

    python runs a module, a directory or an archive through two functions of `runpy`, the second of which calls `exec`.
    """
    here = count.in_use() - 1
    found: dict[str, int] = {}
    exec("calls = in_use()", {"in_use": count.in_use}, found)
    of_exec = found["calls"] - here - 1
    return here + of_exec - (2 + of_exec if by_runpy else 1)


def _find() -> memoryview | None:
    """Return the int that changes by one with each call, None unless there is exactly one."""
    try:
        import ctypes

        # A separate library object: attributes set on the functions of `ctypes.pythonapi` are global to the process.
        interpreter = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)  # noqa: SLF001 - documented
        state = interpreter.PyThreadState_Get
        state.restype = ctypes.c_void_p
        fields = memoryview((ctypes.c_int * _FIELDS).from_address(state())).cast("B").cast("i")
    except (ImportError, AttributeError, OSError):
        return None
    first, second, third = (_fields_below(fields, calls) for calls in (1, 2, 3))
    found = [
        index
        for index in range(_FIELDS - 1)
        if second[index] - first[index] == third[index] - second[index] == -LEAVE_OUT
        and (not COUNTS_DOWN or fields[index + 1] == sys.getrecursionlimit())
    ]
    return fields[found[0] : found[0] + 1] if len(found) == 1 else None


def _fields_below(fields: memoryview, calls: int) -> list[int]:
    """Return the fields as read below this many calls of this function."""
    return fields.tolist() if calls == 1 else _fields_below(fields, calls - 1)
