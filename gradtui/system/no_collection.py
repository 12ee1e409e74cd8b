"""Keep Python's cyclic garbage collector off the many long-lived objects that gradtui creates."""

from __future__ import annotations

import gc
import os
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager

_threads: set[int] = set()
"""The threads that have disabled garbage collection and will enable it again."""
_exempt = 0
"""How many objects `exempt_what_exists` has left out; later there are fewer, unless the script leaves out others."""


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

    A full collection visits every object, and the import of torch alone makes several.
    """
    gc.freeze()
    global _exempt
    _exempt = gc.get_freeze_count()


def end_exemption() -> None:
    """Let the collections at the end of the process find what they find under plain python.

    A script may have put something of its own on an object that is exempt, such as `os.environ`. Objects that the script has
    exempted itself stay so.
    """
    if 0 < gc.get_freeze_count() <= _exempt:
        gc.unfreeze()


def _enable_in_child() -> None:
    """Enable garbage collection in a forked child, where the thread that would do it does not exist."""
    if _threads - {get_ident()}:
        gc.enable()
        _threads.intersection_update({get_ident()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_in_child)
