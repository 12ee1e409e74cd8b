"""Report from the training process to its supervisor in what state the terminal is: one JSON line per change, over a socket.

The training process writes (UI thread and main thread); the supervisor reads when the process has stopped or died. The last
line counts: if a process dies while the screen is up, the supervisor restores the terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from dataclasses import replace
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.system.descriptors import move_aside

LineSettings = list[Any]
"""The attributes argument of `termios.tcsetattr`."""


@dataclass(frozen=True)
class TerminalState:
    """The state of the terminal, as the training process reported it.

    Attributes:
        screen_up: the terminal is in application mode.
        log: the file that receives the output; None if it goes to the terminal.
        stop_group: a key requested the stop that follows, so it applies to the whole job.
        is_lent: the script has the terminal, to read from the keyboard: the screen is closed for as long.
        is_killed: the user asked to kill the process.
        settings: the terminal's line settings before it was last put in application mode.
    """

    screen_up: bool = False
    log: str | None = None
    stop_group: bool = False
    is_lent: bool = False
    is_killed: bool = False
    settings: LineSettings | None = None


class SupervisorConnection:
    """The training process's end. It writes nothing without a supervisor, and nothing in processes forked later."""

    def __init__(self, descriptor: int = -1, supervisor: int | None = None) -> None:
        """Create the end from the training process's end of the socket and the supervisor's process id."""
        self._descriptor = descriptor
        self._supervisor = supervisor
        self._owner = os.getpid()

    def supervisor_is_gone(self) -> bool:
        """Return whether the supervisor has died: then no process restores the terminal, and a shell may already be using it.

        False if there was none, and in processes that the script forked.
        """
        return self._supervisor is not None and os.getpid() == self._owner and os.getppid() != self._supervisor

    def report(self, **change: object) -> None:
        """Report new values of fields of `TerminalState`: what is the case from now on, or is about to be."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):  # the supervisor is gone, or its socket is full: nothing to be done here
                os.write(self._descriptor, json.dumps(change).encode() + b"\n")

    def kill(self) -> None:
        """Have the supervisor end this process by SIGTERM, and by SIGKILL if it has not ended some seconds later."""
        if self._supervisor is not None and not self.supervisor_is_gone():
            self.report(is_killed=True)
            os.kill(self._supervisor, signal.SIGTERM)

    def hang_up_requested(self) -> bool:
        """Return whether the supervisor received a SIGHUP that was not from the terminal."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                return bool(os.read(self._descriptor, 64))
        return False


class TrainingProcessConnection:
    """The supervisor's end. `read` combines the reports so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._state = TerminalState()
        os.set_blocking(descriptor, False)

    def hang_up(self) -> None:
        """End the training process by SIGHUP, which it ignores if it comes from a terminal that went away."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, b"h")

    def read(self) -> TerminalState:
        """Read all reports and return the newest state. Never blocks, even if forked children still hold the writing end."""
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, 65536):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                self._state = replace(self._state, **json.loads(line))
        return self._state


def socket_pair() -> tuple[int, int]:
    """Create the socket for one run. Returns the descriptors of the supervisor and of the training process, with high numbers
    that a script does not use."""
    ends = [move_aside(end.detach()) for end in socket.socketpair()]
    for end in ends:
        os.set_blocking(end, False)
    return ends[0], ends[1]
