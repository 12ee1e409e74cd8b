"""Where the viewer of a job sends its commands: to the ranks, by way of the hub."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from gradtui.protocol.commands import Command
from gradtui.transport.in_process import CommandQueue

FIRST_ID = 1 << 24
"""The ids of the viewer's commands begin here: a rank numbers its own commands from 1 on. Those of attached viewers are
larger."""


class JobCommands(CommandQueue):
    """Sends each command at once."""

    def __init__(self, send: Callable[[Command], None]) -> None:
        super().__init__()
        self._send = send
        self._numbers = itertools.count(FIRST_ID)

    def submit(self, make: Callable[[int], Command], origin: str = "keyboard", id_: int | None = None) -> Command:
        """Make a command and send it."""
        command = replace(make(next(self._numbers) if id_ is None else id_), origin=origin)
        self._send(command)
        return command
