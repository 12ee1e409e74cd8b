"""Shim for one private name of Textual: `textual.drivers.linux_driver.signal`.

Textual's driver sets signal handlers in four of its methods. `signal.signal` raises off the main thread, and the handlers are
unwanted anyway: they would apply to the whole process of the script. While the UI thread runs, that module sees a `signal`
whose `signal()` does nothing off the main thread; everything else is the real module.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import textual.drivers.linux_driver

_DRIVER_MODULE: Any = textual.drivers.linux_driver


class _QuietSignal:
    """The `signal` module for a thread that may not set handlers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return signal.signal(number, handler)
        return signal.getsignal(number)


@contextlib.contextmanager
def no_signal_handlers() -> Iterator[None]:
    """Keep Textual's driver from setting signal handlers off the main thread while the block runs.

    Raises:
        AttributeError: this Textual's driver has no module-level name `signal`.
    """
    before = _DRIVER_MODULE.signal
    _DRIVER_MODULE.signal = _QuietSignal()
    try:
        yield
    finally:
        _DRIVER_MODULE.signal = before
