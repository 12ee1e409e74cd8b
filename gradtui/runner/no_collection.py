"""Keeps Python's cyclic collector from running while the screen comes up. Main thread, before the script runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Until this ends nothing is collected: of what a start makes nothing is garbage, and looking for it takes a tenth."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
