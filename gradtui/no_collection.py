"""Keeps Python's cyclic collector from running while much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Until this ends nothing is collected: of what a start makes nothing is garbage, and looking for it takes a tenth; of a
    tree of many modules, a third."""
    was_on = gc.isenabled()
    try:
        # Within: a Ctrl+C may come right after it, and a script that catches that goes on.
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()
