"""An event loop for a process whose descriptors are somebody else's: a script may close all of them (`os.closerange`).

The loop then goes on without: it looks at its timers and at what other threads hand to it, until the app has left. Nothing
of it is closed after that, since its numbers may be those of the script's files by now. UI thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import selectors
import time
from collections.abc import Coroutine
from typing import Any

_LOOK_S = 0.05
"""Without descriptors nothing wakes the loop up: it looks this often."""


class _SturdySelector(selectors.DefaultSelector):
    """Finds nothing, after a moment, once its descriptor is gone."""

    is_lost = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.is_lost:
            try:
                found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
            except (OSError, ValueError):
                self.is_lost = True
            else:
                return found
        time.sleep(_LOOK_S if timeout is None else max(0.0, min(timeout, _LOOK_S)))
        return []


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` in a loop of its own on this thread, as `asyncio.run` does. Raises what it raises."""
    selector = _SturdySelector()
    loop = asyncio.SelectorEventLoop(selector)
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main)
    finally:
        try:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            if selector.is_lost:
                # Not even the garbage collector may close it.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(loop))
            else:
                loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
