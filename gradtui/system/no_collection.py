"""Keep Python's cyclic garbage collector off the many long-lived objects that gradtui creates."""

from __future__ import annotations

import gc
import os
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager

_threads: set[int] = set()
"""The threads that have disabled garbage collection and will enable it again."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection within this context.

    Startup and the creation of a large module tree make no garbage, but collection would take a tenth and a third of their
    time.
    """
    was_on = gc.isenabled()
    try:
        # Inside `try`: a Ctrl+C may arrive right after it, and a script that catches it continues.
        if was_on:
            _threads.add(get_ident())
            gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()
            _threads.discard(get_ident())


def exempt_what_exists() -> None:
    """Leave all objects that exist now out of every later collection: gradtui's, before any object of the script exists.

    A full collection visits every object, and one script makes many: the import of torch alone makes several. The end of the
    process makes two. Modules end as ever: the interpreter clears them one by one.
    """
    gc.freeze()


def _enable_in_child() -> None:
    """Enable garbage collection in a forked child, where the thread that would do it does not exist."""
    if _threads - {get_ident()}:
        gc.enable()
        _threads.intersection_update({get_ident()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_in_child)
