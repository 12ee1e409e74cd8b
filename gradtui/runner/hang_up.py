"""A terminal that goes away, as when SSH drops, must not end training: SIGHUP is ignored while the screen is up.

The kernel sends it to the whole job in front, and a shell that ends sends it once more (source: termios(3), bash(1)). It is
ignored below Python, so that a script which asks for its handlers, or sets one, meets what it would meet without us.
Programs that the script starts ignore it as well, as under `nohup`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from typing import Any

_DEFAULT, _IGNORE = 0, 1
"""SIG_DFL and SIG_IGN as C has them."""


class HangUpShield:
    """Ignores SIGHUP from `raise_` until `lower`, unless somebody has decided about it already."""

    def __init__(self) -> None:
        self._is_up = False

    def raise_(self) -> None:
        """Ignore it from now on, where its action is the default. Main thread."""
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL and _set(_IGNORE) == _DEFAULT:
            self._is_up = True

    def lower(self) -> None:
        """It has its default action again, where the script has set no other. Any thread."""
        if not self._is_up:
            return
        self._is_up = False
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            _set(_DEFAULT)

    def let_through(self) -> None:
        """Somebody sent it on purpose: end by it, unless the script has a handler of its own, which was told already."""
        if self._is_up:
            self.lower()
            os.kill(os.getpid(), signal.SIGHUP)


def is_gone(descriptor: int) -> bool:
    """Whether the other end of the terminal is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _set(action: Any) -> int | None:
    """Set the action and return the one before; None where C's library has no say."""
    with contextlib.suppress(OSError, AttributeError):
        call = ctypes.CDLL(None).signal
        call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
        return call(int(signal.SIGHUP), action) or _DEFAULT
    return None
