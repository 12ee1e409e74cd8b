"""An event loop for a process in which a script may close every descriptor (`os.closerange`).

The loop then continues without descriptors: it polls its timers and the calls that other threads hand to it, until the app has
ended. After that it closes no descriptor, since its numbers may be those of the script's files by now. UI thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import selectors
from _thread import get_ident
from collections.abc import Coroutine
from time import monotonic, sleep  # a script may replace those of the module
from typing import Any

_LOOK_S = 0.05
"""Seconds between two polls without descriptors, because nothing wakes the loop up then."""


class _SturdySelector(selectors.DefaultSelector):
    """A selector that returns no events, after a short sleep, once its descriptor is lost."""

    is_lost = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.is_lost:
            try:
                found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
            except (OSError, ValueError):
                self.is_lost = True
            else:
                return found
        sleep(_LOOK_S if timeout is None else max(0.0, min(timeout, _LOOK_S)))
        return []


class _Loop(asyncio.SelectorEventLoop):
    """A loop that shares neither clock nor numbers with the script's own loops, and whose debug mode is off."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        # asyncio logs which selector a loop has. The level and the handlers may be the script's.
        thread, log = get_ident(), logging.getLogger("asyncio")

        def is_of_another_thread(record: logging.LogRecord) -> bool:
            return record.thread != thread

        log.addFilter(is_of_another_thread)
        try:
            super().__init__(selector)
        finally:
            log.removeFilter(is_of_another_thread)
        self.set_debug(False)

    def time(self) -> float:
        return monotonic()

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        # asyncio numbers the tasks of the process that have no name.
        return super().create_task(coro, **{**options, "name": options.get("name") or "gradtui"})


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` in a new loop on this thread, as `asyncio.run` does. Raises what `main` raises."""
    selector = _SturdySelector()
    loop = _Loop(selector)
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
                # Not even the garbage collector may close the loop.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(loop))
            else:
                loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
