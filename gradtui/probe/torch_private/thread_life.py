"""Whether a thread is still running, asked without any lock.

`sys._current_frames` must not be asked while threads train side by side. CPython 3.11 holds a lock of the interpreter within it
and a garbage collection there may let another thread run that asks the same: both then wait for good. The storage of a thread
is freed as the thread ends, and a weak reference into it tells.
"""

from __future__ import annotations

import threading
import weakref


class _Token:
    """Lives as long as the thread that made it."""

    __slots__ = ("__weakref__",)


_own = threading.local()


class ThreadLife:
    """The life of the thread that makes this object."""

    def __init__(self) -> None:
        token = getattr(_own, "token", None)
        if token is None:
            token = _own.token = _Token()
        self._token = weakref.ref(token)

    def goes_on(self) -> bool:
        """Whether the thread is still running. Any thread may ask."""
        return self._token() is not None
