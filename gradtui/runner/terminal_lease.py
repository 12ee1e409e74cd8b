"""How the training process tells its supervisor who owns the terminal: one JSON line per change, over a socket.

The training process writes (UI thread and main thread); the supervisor reads when the process has stopped or died. What
counts is the last word: a process that dies while it holds the screen leaves the supervisor to restore the terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass, replace
from typing import Any

from gradtui.descriptors import move_aside

LineSettings = list[Any]
"""What `termios.tcsetattr` takes."""


@dataclass(frozen=True)
class LeaseState:
    """What the supervisor knows.

    Attributes:
        screen_up: the terminal is in application mode.
        log: where the output goes; None where it goes to the terminal.
        stop_group: the stop that is about to come was asked for by a key, and is meant for the whole job.
        settings: the terminal's line settings before it was last put in application mode.
    """

    screen_up: bool = False
    log: str | None = None
    stop_group: bool = False
    settings: LineSettings | None = None


class TerminalLease:
    """The end in the training process. Silent where nobody supervises, and in processes forked later."""

    def __init__(self, descriptor: int | None = None, supervisor: int | None = None) -> None:
        """Make it in the training process, from its end of the socket and the supervisor's process id."""
        self._descriptor = descriptor
        self._supervisor = supervisor
        self._owner = os.getpid()

    def supervisor_is_gone(self) -> bool:
        """Whether the supervisor has died: then nobody repairs the terminal, and a shell may be using it already.

        False where there was none, and in processes that the script forked.
        """
        return self._supervisor is not None and os.getpid() == self._owner and os.getppid() != self._supervisor

    def entered(self, settings: LineSettings | None = None) -> None:
        """The terminal, with these line settings, is about to be put in application mode."""
        self._say({"screen_up": True, "settings": settings})

    def left(self) -> None:
        """The terminal is as it was before `entered`."""
        self._say({"screen_up": False})

    def stopping(self, group: bool) -> None:
        """Whether a stop that follows is meant for the whole process group, as a Ctrl+Z is."""
        self._say({"stop_group": group})

    def output_in(self, log: str | None) -> None:
        """The script's output goes to the file `log` from now on, or to the terminal again (None)."""
        self._say({"log": log})

    def told_to_hang_up(self) -> bool:
        """Whether the supervisor was sent a SIGHUP that was not the terminal's."""
        if self._descriptor is None or os.getpid() != self._owner:
            return False
        with contextlib.suppress(OSError):
            return bool(os.read(self._descriptor, 64))
        return False

    def _say(self, change: dict[str, object]) -> None:
        if self._descriptor is None or os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):  # the supervisor is gone, or its socket is full: nothing to be done here
            os.write(self._descriptor, json.dumps(change).encode() + b"\n")


class LeaseReader:
    """The other end, in the supervisor. `state` is what has been said so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._state = LeaseState()
        os.set_blocking(descriptor, False)

    def hang_up(self) -> None:
        """Have the training process end by SIGHUP, which it ignores where it comes from a terminal that went away."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, b"h")

    def read(self) -> LeaseState:
        """Take in all that was written and return the newest state. Never blocks, and forked children that still
        hold the writing end make no difference."""
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, 65536):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                self._state = replace(self._state, **json.loads(line))
        return self._state


def lease_ends() -> tuple[int, int]:
    """Make the socket for one lease. Returns the supervisor's descriptor and the training process's, out of a script's way."""
    ends = [move_aside(end.detach()) for end in socket.socketpair()]
    for end in ends:
        os.set_blocking(end, False)
    return ends[0], ends[1]
