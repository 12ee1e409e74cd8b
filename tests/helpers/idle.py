"""Waits in place of Textual's, which sleep 20 ms and more behind every key: a third of the time of the tests of the screen."""

from __future__ import annotations

import asyncio
import threading
from time import process_time
from typing import Any
from weakref import WeakSet

from textual import _wait

FRAME = 0.002
"""Seconds between two updates of a screen, in place of 1/60."""

_known: WeakSet[threading.Thread] = WeakSet()


def know_threads() -> None:
    """Take no thread that runs now for one of the next test: former tests may have left it."""
    _known.clear()
    _known.update(threading.enumerate())


async def wait_for_idle(min_sleep: float = _wait.SLEEP_GRANULARITY, max_sleep: float = 1) -> None:
    """Do what `textual._wait.wait_for_idle` does, without the sleep where nothing would happen in it.

    That one sleeps 20 ms, and again while the process has worked for more than 1 ms of them. Where a test has no other
    threads only the event loop can work: what is ready, and what is due within those 20 ms.
    """
    loop: Any = asyncio.get_running_loop()
    end = loop.time() + max_sleep
    while all(thread in _known for thread in threading.enumerate()):
        worked, horizon = process_time(), loop.time() + _wait.SLEEP_GRANULARITY
        while True:
            await asyncio.sleep(0)
            due = min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=horizon)
            if loop.time() >= end or (due >= horizon and not loop._ready):
                break
            if not loop._ready:
                await asyncio.sleep(due - loop.time())
        if process_time() - worked < _wait.SLEEP_IDLE or loop.time() >= end:
            return
    await _wait.wait_for_idle(min_sleep, max_sleep)
