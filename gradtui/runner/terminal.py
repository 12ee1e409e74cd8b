"""The controlling terminal, opened separately from fds 0 to 2, and the restoration of its original state.

One object is in the supervisor, to restore the terminal after a dead process, and one in the training process, for the
screen's driver. Its methods may be called from any thread.

A terminal that disappears, as when SSH disconnects, must not end training. The kernel sends SIGHUP to the whole foreground job,
and a shell that ends sends it again (source: termios(3), bash(1)), so the training process ignores it while the screen is up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from typing import Any

from gradtui.runner.supervisor_connection import LineSettings, SupervisorConnection
from gradtui.system.descriptors import move_aside

RESET = b"".join(
    (
        b"\x1b\\",  # ends a control string that was cut short; as any escape it also aborts half a sequence
        b"\x1b[?2026l",  # synchronised output off, or nothing more would be shown
        b"\x1b[<u",  # the keyboard protocol's stack belongs to the alternate screen: pop it before leaving
        b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l",  # mouse reports
        b"\x1b[?1004l",  # focus reports
        b"\x1b[?2004l",  # bracketed paste
        b"\x1b[?2048l",  # in-band resize reports
        b"\x1b[?7h",  # line wrap on
        b"\x1b[0m",
        b"\x1b[?1049l",  # leave the alternate screen; a second time it would move the cursor to a stale place
        b"\x1b[?25h",  # cursor on
    )
)
"""Escape sequences that reset every terminal mode that the screen may have set. For an unclean end only."""

_WRITE_PATIENCE = 0.5
"""Seconds to wait for a terminal that accepts no output before giving up."""

_DEFAULT, _IGNORE = 0, 1
"""SIG_DFL and SIG_IGN of C."""


class SighupAction:
    """Ignores SIGHUP from `ignore` until `restore`, unless its action was already changed.

    It sets the action below Python, so that a script that reads or sets its handler behaves as without gradtui. Programs that
    the script starts ignore SIGHUP as well, as under `nohup`.
    """

    def __init__(self) -> None:
        self._is_ignored = False

    def ignore(self) -> None:
        """Ignore SIGHUP from now on, if its action is the default. Main thread."""
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL and self._set(_IGNORE) == _DEFAULT:
            self._is_ignored = True

    def restore(self) -> None:
        """Restore the default action, unless the script has set another one. Any thread."""
        if self._is_ignored and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            self._set(_DEFAULT)
        self._is_ignored = False

    def deliver(self) -> None:
        """End the process by a SIGHUP that was sent on purpose, unless the script has a handler, which has already run."""
        if self._is_ignored:
            self.restore()
            os.kill(os.getpid(), signal.SIGHUP)

    @staticmethod
    def _set(action: int) -> Any:
        """Set the action and return the previous one; None if the C library cannot be called."""
        with contextlib.suppress(OSError, AttributeError):
            call = ctypes.CDLL(None).signal
            call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
            return call(int(signal.SIGHUP), action) or _DEFAULT
        return None


class ControllingTerminal:
    """The process's terminal, with its line settings from when the screen started, or from when this object was created."""

    def __init__(self, connection: SupervisorConnection | None = None) -> None:
        """Open the terminal. This object reports to `connection` when the screen starts and ends.

        Raises:
            OSError: there is no controlling terminal.
        """
        self.descriptor = move_aside(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        self._identity = _identity(self.descriptor)
        self.was_lost = False
        """Whether the script has closed gradtui's descriptor at some time."""
        self.sighup = SighupAction()
        self.is_lent: Callable[[], bool] = lambda: False
        """Shows new output on a terminal that the script has, ends a loan that is over, and returns whether it still has it.

        The screen calls it at short intervals.
        """
        self._connection = connection or SupervisorConnection()
        self._settings = line_settings(self.descriptor)

    def entered(self) -> None:
        """Save the line settings. Call this before the first byte that changes the terminal's mode."""
        # A run that started in the background opened the terminal with the settings of its shell's line editor.
        self._settings = line_settings(self.descriptor) or self._settings
        self._connection.report(screen_up=True, settings=self._settings)

    def left(self) -> None:
        """Report that the screen ended. Call this after the terminal's mode is restored."""
        self._connection.report(screen_up=False)

    def is_orphaned(self) -> bool:
        """Whether the supervisor has died, so that the screen should be closed."""
        return self._connection.supervisor_is_gone()

    @property
    def is_gone(self) -> bool:
        """Whether the other end of the terminal is gone."""
        return not self.is_lost and is_gone(self.descriptor)

    @property
    def is_raw(self) -> bool:
        """Whether the terminal is in raw mode, as for a screen: it delivers keys, not lines. True if the settings are
        unreadable."""
        with contextlib.suppress(termios.error):
            return not termios.tcgetattr(self.descriptor)[3] & termios.ICANON
        return True

    @property
    def is_lost(self) -> bool:
        """Whether the script has closed gradtui's descriptor (`os.closerange` closes all); `restore` opens another."""
        return _identity(self.descriptor) != self._identity

    def handle_hang_up(self) -> None:
        """End the process by SIGHUP if one was sent to the supervisor on purpose."""
        if self._connection.hang_up_requested():
            self.sighup.deliver()

    def stop_job(self) -> None:
        """Stop the process, and through the supervisor its whole group, as Ctrl+Z does. Returns when continued.

        The signal goes to the calling thread, so that this thread certainly stops before it continues. A signal sent to the
        group could leave it running for a moment, long enough to take the terminal back.
        """
        self._connection.report(stop_group=True)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        self._connection.report(stop_group=False)

    def restore(self, settings: LineSettings | None = None) -> None:
        """Restore the terminal after an unclean end, and discard unread input.

        A background job may call this only while SIGTTOU is blocked or ignored.

        Args:
            settings: the line settings that another process saved; by default those that this object saved.
        """
        if self.is_lost:
            self.was_lost = True
            with contextlib.suppress(OSError):
                self.descriptor = move_aside(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        self.restore_settings(settings)
        with contextlib.suppress(OSError, ValueError):
            if select.select([], [self.descriptor], [], _WRITE_PATIENCE)[1]:
                os.write(self.descriptor, RESET)

    def restore_settings(self, settings: LineSettings | None = None) -> None:
        """Restore the line settings only, as `restore` does, and discard unread input."""
        with contextlib.suppress(termios.error):
            found = settings or self._settings
            if found is not None:
                termios.tcsetattr(self.descriptor, termios.TCSANOW, found)
            termios.tcflush(self.descriptor, termios.TCIFLUSH)

    def close(self) -> None:
        """Close the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


def line_settings(descriptor: int) -> LineSettings | None:
    """Return the terminal's settings for `termios.tcsetattr`, as plain numbers only; None if they are unreadable."""
    with contextlib.suppress(termios.error):
        *flags, characters = termios.tcgetattr(descriptor)
        return [*flags, [each[0] if isinstance(each, bytes) else each for each in characters]]
    return None


def is_gone(descriptor: int) -> bool:
    """Return whether the other end of the terminal is gone.

    macOS polls no terminals, and answers POLLNVAL. There a terminal that is gone has no settings any more.
    """
    poll = select.poll()
    poll.register(descriptor, 0)
    found = sum(event for _, event in poll.poll(0))
    return bool(found & select.POLLHUP) or (bool(found & select.POLLNVAL) and line_settings(descriptor) is None)


def terminal_width(descriptor: int = 2) -> int | None:
    """Return the columns of the terminal behind a descriptor; None if it is no terminal.

    This does not read the environment: while a screen is up, its COLUMNS are those of a panel."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except (OSError, ValueError):
        return None


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    """Return a value that identifies the open device; None if the descriptor is closed."""
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino, found.st_rdev
    return None


def why_no_screen(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return in a clause why the dashboard cannot be shown here, or None if it can.

    The dashboard needs a controlling terminal for keys and drawing, stdin and stdout or stderr on it, and a terminal type that
    supports cursor movement. Textual itself would draw into a pipe and loop on a closed stdin.
    """
    if not _is_terminal(sys.__stdin__):
        return "standard input is not a terminal"
    if not (_is_terminal(sys.__stdout__) and _is_terminal(sys.__stderr__)):
        return "the output is not a terminal"
    if environ.get("TERM", "") in ("", "dumb"):
        return "TERM names no terminal that can be drawn on"
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return "there is no controlling terminal"
    return None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream is not None and os.isatty(stream.fileno()))
    except (OSError, ValueError):
        return False
