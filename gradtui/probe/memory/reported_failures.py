"""Which failures have been told of, so that each is told once though its exception passes several of our places.

Nothing is left on the script's exceptions, and none is kept, even for a moment: that would keep all the tensors in its frames.
A class of torch's or the script's own can be referred to weakly. Python's own classes cannot (the CPU's allocator raises a
bare RuntimeError): of those the texts are kept, since no other exception has the very same tuple of them while it is kept.
The thread whose allocation failed.
"""

from __future__ import annotations

import weakref
from collections import deque

_KEPT = 8
"""More than can be on their way at once: one of each thread, and what it was raised from."""


class ReportedFailures:
    """The exceptions that were told of last, with whether each was looked at."""

    def __init__(self) -> None:
        self._told: deque[tuple[object, int, bool]] = deque(maxlen=_KEPT)

    def note(self, error: BaseException, *, looked: bool) -> None:
        """This one has been told of now."""
        others = (each for each in tuple(self._told) if not _is_same(each[0], each[1], error))
        self._told = deque((*others, (_trace_of(error), id(error), looked)), maxlen=_KEPT)

    def looked(self, error: BaseException) -> bool | None:
        """Whether it was looked at when it was told of; None for one that has not been."""
        return next((looked for trace, name, looked in tuple(self._told) if _is_same(trace, name, error)), None)


def _trace_of(error: BaseException) -> object:
    """What tells this exception from every other one that there is or will be while this is kept."""
    try:
        return weakref.ref(error)
    except TypeError:
        texts = error.args
        # All exceptions without any share one empty tuple.
        return texts if texts and all(type(text) is str for text in texts) else _raised_at(error)


def _is_same(trace: object, name: int, error: BaseException) -> bool:
    if isinstance(trace, weakref.ref):
        return trace() is error
    if name != id(error):
        return False
    return trace == _raised_at(error) if isinstance(trace, int) else trace is error.args


def _raised_at(error: BaseException) -> int:
    """The innermost entry of its traceback, by identity: the best there is for a bare MemoryError."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    return id(entry)
