"""Threads of gradtui beside those of a script. They take none of the signals that are sent to the process.

The kernel gives such a signal to any thread that does not block it (signal(7)). A script may block a signal in all of its
threads and wait for it with `signal.sigwait`. If another thread takes the signal, its default action ends the process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")
"""The kernel sends these to the thread that causes them, and `faulthandler` reports them."""


class OwnThread(threading.Thread):
    """A daemon thread that takes no signal. Threads and processes that it starts inherit its signal mask."""

    def __init__(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)

    def start(self) -> None:
        """Start the thread. The calling thread blocks signals meanwhile."""
        if not hasattr(signal, "pthread_sigmask"):
            super().start()
            return
        faults = {getattr(signal, name, None) for name in _FAULTS}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
