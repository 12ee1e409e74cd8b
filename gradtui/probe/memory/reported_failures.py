"""Record which failures were reported, so that each is reported once although its exception passes several wrappers.

Nothing is attached to the script's exceptions, and none is kept, even for a moment: that would keep all the tensors in its
frames. Exceptions of classes that torch or the script defines support weak references. Those of Python's built-in classes do
not (the CPU's allocator raises a bare RuntimeError): for these the texts are kept, since no other exception has the very same
tuple of them while it is kept. Runs on the thread whose allocation failed.
"""

from __future__ import annotations

import weakref
from collections import deque

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
