"""The controlling terminal, opened apart from fds 0 to 2, and the way back to how it was found.

One object lives in the supervisor, to repair what a dead process left behind, and one in the training process, for the
screen's driver. Its methods may be called from any thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Mapping
from typing import Any

from gradtui.descriptors import move_aside
from gradtui.runner.hang_up import HangUpShield, is_gone
from gradtui.runner.terminal_lease import LineSettings, TerminalLease

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
"""Undoes every terminal mode that the screen may have set. For an unclean end only."""

_WRITE_PATIENCE = 0.5
"""Seconds to wait for a terminal that takes no output before giving it up."""


class ControllingTerminal:
    """The process's terminal, with its line settings as they were when the screen came up, or when this object was made."""

    def __init__(self, lease: TerminalLease | None = None) -> None:
        """Open the terminal. `lease` is told when the screen comes and goes.

        Raises:
            OSError: there is no controlling terminal.
        """
        self.descriptor = move_aside(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        self._identity = _identity(self.descriptor)
        self.was_lost = False
        """Whether the script has closed our descriptor at some time."""
        self.shield = HangUpShield()
        self._lease = lease or TerminalLease()
        self._settings = line_settings(self.descriptor)

    def entered(self) -> None:
        """To be called before the first byte that changes the terminal's mode."""
        # A run that started in the background found the settings with which its shell reads a line.
        self._settings = line_settings(self.descriptor) or self._settings
        self._lease.entered(self._settings)

    def left(self) -> None:
        """To be called after the terminal's mode is as it was."""
        self._lease.left()

    def is_orphaned(self) -> bool:
        """Whether the supervisor has died, so that the screen had better be closed."""
        return self._lease.supervisor_is_gone()

    @property
    def is_gone(self) -> bool:
        """Whether its other end is gone."""
        return not self.is_lost and is_gone(self.descriptor)

    @property
    def is_raw(self) -> bool:
        """Whether a screen is up on it: each key counts, not each line. True where it will not say."""
        with contextlib.suppress(termios.error):
            return not termios.tcgetattr(self.descriptor)[3] & termios.ICANON
        return True

    @property
    def is_lost(self) -> bool:
        """Whether somebody has closed our descriptor (`os.closerange` does that to all); `restore` opens another."""
        return _identity(self.descriptor) != self._identity

    def heed_hang_up(self) -> None:
        """End by the SIGHUP that somebody sent to the supervisor on purpose, if one has come."""
        if self._lease.told_to_hang_up():
            self.shield.let_through()

    def stop_job(self) -> None:
        """Stop the process, and by way of the supervisor its whole group, as Ctrl+Z does. Returns when continued.

        The signal goes to the calling thread, so that this thread certainly stops before it goes on. One sent to the
        group could leave it running for a moment, long enough to take the terminal back.
        """
        self._lease.stopping(group=True)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        self._lease.stopping(group=False)

    def restore(self, settings: LineSettings | None = None) -> None:
        """Put the terminal back by force after an unclean end, and drop input that nobody will read.

        Safe from the background of a job only while SIGTTOU is blocked or ignored.

        Args:
            settings: the line settings that another process found; by default those that this object knows.
        """
        if self.is_lost:
            self.was_lost = True
            with contextlib.suppress(OSError):
                self.descriptor = move_aside(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        with contextlib.suppress(termios.error):
            found = settings or self._settings
            if found is not None:
                termios.tcsetattr(self.descriptor, termios.TCSANOW, found)
            termios.tcflush(self.descriptor, termios.TCIFLUSH)
        with contextlib.suppress(OSError, ValueError):
            if select.select([], [self.descriptor], [], _WRITE_PATIENCE)[1]:
                os.write(self.descriptor, RESET)

    def close(self) -> None:
        """Give the descriptor back."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


def line_settings(descriptor: int) -> LineSettings | None:
    """The terminal's settings as `termios.tcsetattr` takes them, of plain numbers only; None where it will not say."""
    with contextlib.suppress(termios.error):
        *flags, characters = termios.tcgetattr(descriptor)
        return [*flags, [each[0] if isinstance(each, bytes) else each for each in characters]]
    return None


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    """What tells one open device from another; None where the descriptor is closed."""
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino, found.st_rdev
    return None


def why_no_screen(environ: Mapping[str, str] = os.environ) -> str | None:
    """Say in a clause why the dashboard cannot be shown here, or None where it can.

    It needs a controlling terminal for keys and drawing, stdin and stdout or stderr on it, and a terminal type that
    knows cursor movement. Textual itself would draw into a pipe and spin on a closed stdin.
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
