"""Disable Python's cyclic garbage collector while gradtui creates many long-lived objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection within this context.

    Startup and the creation of a large module tree make no garbage, but collection would take a tenth and a third of their
    time.
    """
    was_on = gc.isenabled()
    try:
        # Inside `try`: a Ctrl+C may arrive right after it, and a script that catches it continues.
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()
