"""Ignore SIGHUP while the screen is up: a terminal that disappears, as when SSH disconnects, must not end training.

The kernel sends SIGHUP to the whole foreground job, and a shell that ends sends it again (source: termios(3), bash(1)). gradtui
sets the action below Python, so that a script that reads or sets its handler behaves as without gradtui. Programs that the
script starts ignore it as well, as under `nohup`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from typing import Any

_DEFAULT, _IGNORE = 0, 1
"""SIG_DFL and SIG_IGN of C."""


class HangUpShield:
    """Ignores SIGHUP from `raise_` until `lower`, unless its action was already changed."""

    def __init__(self) -> None:
        self._is_up = False

    def raise_(self) -> None:
        """Ignore SIGHUP from now on, if its action is the default. Main thread."""
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL and _set(_IGNORE) == _DEFAULT:
            self._is_up = True

    def lower(self) -> None:
        """Restore the default action, unless the script has set another one. Any thread."""
        if not self._is_up:
            return
        self._is_up = False
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            _set(_DEFAULT)

    def let_through(self) -> None:
        """End the process by a SIGHUP that was sent on purpose, unless the script has a handler, which has already run."""
        if self._is_up:
            self.lower()
            os.kill(os.getpid(), signal.SIGHUP)


def is_gone(descriptor: int) -> bool:
    """Return whether the other end of the terminal is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _set(action: Any) -> int | None:
    """Set the action and return the previous one; None if the C library cannot be called."""
    with contextlib.suppress(OSError, AttributeError):
        call = ctypes.CDLL(None).signal
        call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        return call(int(signal.SIGHUP), action) or _DEFAULT
    return None
