"""Detect whether a thread is still running, without any lock.

`sys._current_frames` must not be called while threads train side by side. CPython 3.11 holds a lock of the interpreter
within it, and a garbage collection there may let another thread run that makes the same call: both then wait forever. A
thread's local storage is freed as the thread ends, and a weak reference to an object in it shows that.
"""

from __future__ import annotations

import threading
import weakref


class _Token:
    """An object that lives as long as the thread that made it."""

    __slots__ = ("__weakref__",)


_own = threading.local()


class ThreadLife:
    """Tracks the life of the thread that constructs this object."""

    def __init__(self) -> None:
        token = getattr(_own, "token", None)
        if token is None:
            token = _own.token = _Token()
        self._token = weakref.ref(token)

    def goes_on(self) -> bool:
        """Return whether the thread is still running. Any thread may call this."""
        return self._token() is not None
