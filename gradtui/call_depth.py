"""Leaves gradtui's own calls out of CPython's call counter, so that a script recurses as deep as under plain python.

The counter is an int in the state of each thread (`PyThreadState`). Python 3.10 counts up; later versions count down from the
recursion limit. `sys.getrecursionlimit()` returns what it returns without gradtui. Where `_find` does not find exactly one
such int, the counter stays untouched. Main thread, whose state lives as long as the process; standard library only.
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
"""What to add to the count to leave one call out; to take off again when that call ends."""

_FIELDS = 32
"""The count is among the first ints of a thread's state: found at 7 to 11 in Python 3.10 to 3.13."""


class CallCount:
    """The count of one thread.

    Attributes:
        thread: the only thread that may change it; 0 where no count is known.
        cell: the count itself. A change of `LEAVE_OUT` for each call that is left out costs no call of its own.
        spare: what any other thread changes instead.
    """

    def __init__(self, thread: int, cell: memoryview) -> None:
        self.thread = thread
        self.cell = cell
        self.spare = _ineffective()

    def in_use(self) -> int:
        """How many calls are under way, the caller's included."""
        count: int = self.cell[0]
        return (sys.getrecursionlimit() - count if COUNTS_DOWN else count) - 1


@functools.cache
def of_main_thread() -> CallCount:
    """The count of the main thread; one without effect where it cannot be found, or where another thread asks first."""
    cell = _find() if threading.current_thread() is threading.main_thread() else None
    return CallCount(0, _ineffective()) if cell is None else CallCount(get_ident(), cell)


def _ineffective() -> memoryview:
    return memoryview(array("i", [0]))


def calls_below_script(count: CallCount, *, by_runpy: bool) -> int:
    """How many more calls there are below the caller's `exec` of a script than below a script that python runs.

    python runs a module, a directory and an archive by two functions of `runpy`, the second of which calls `exec`.
    """
    here = count.in_use() - 1
    found: dict[str, int] = {}
    exec("calls = in_use()", {"in_use": count.in_use}, found)
    of_exec = found["calls"] - here - 1
    return here + of_exec - (2 + of_exec if by_runpy else 1)


def _find() -> memoryview | None:
    """The int that changes by one with each call, None unless there is exactly one."""
    try:
        import ctypes

        # A library object of our own: what is set on the functions of `ctypes.pythonapi` is everybody's.
        interpreter = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)  # noqa: SLF001 - documented
        state = interpreter.PyThreadState_Get
        state.restype = ctypes.c_void_p
        fields = memoryview((ctypes.c_int * _FIELDS).from_address(state())).cast("B").cast("i")
    except (ImportError, AttributeError, OSError):
        return None
    first, second, third = (_fields_below(fields, calls) for calls in (1, 2, 3))
    found = [
        place
        for place in range(_FIELDS - 1)
        if second[place] - first[place] == third[place] - second[place] == -LEAVE_OUT
        and (not COUNTS_DOWN or fields[place + 1] == sys.getrecursionlimit())
    ]
    return fields[found[0] : found[0] + 1] if len(found) == 1 else None


def _fields_below(fields: memoryview, calls: int) -> list[int]:
    """What the fields are below this many calls of this function."""
    return fields.tolist() if calls == 1 else _fields_below(fields, calls - 1)
