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
    """Sends each command at once.

    Args:
        send: receives each command.
        release: called when the viewer is gone, which could not release held ranks later.
    """

    def __init__(self, send: Callable[[Command], None], release: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._send, self._release = send, release
        self._numbers = itertools.count(FIRST_ID)

    def submit(self, make: Callable[[int], Command], origin: str = "keyboard", id_: int | None = None) -> Command:
        """Make a command and send it."""
        command = replace(make(next(self._numbers) if id_ is None else id_), origin=origin)
        self._send(command)
        return command

    def close(self) -> None:
        """The viewer is gone."""
        super().close()
        self._release()


class OwnCommands(CommandQueue):
    """The commands for the process of the viewer; once child processes have joined as ranks, those of the viewer for all."""

    def __init__(self) -> None:
        super().__init__()
        self._to_all: JobCommands | None = None

    def share(self, to_all: JobCommands) -> None:
        """Let `to_all` send the commands that the viewer makes from now on. This queue only has what `put` puts into it."""
        self._to_all = self._to_all or to_all

    def submit(self, make: Callable[[int], Command], origin: str = "keyboard", id_: int | None = None) -> Command:
        """Make a command. Queue it, or send it to the ranks."""
        if self._to_all is not None:
            return self._to_all.submit(make, origin, id_)
        return super().submit(make, origin, id_)

    def put(self, command: Command) -> None:
        """Queue a command for the process of the viewer."""
        super().submit(lambda _: command, command.origin, command.id)

    def close(self) -> None:
        """The viewer is gone."""
        super().close()
        if self._to_all is not None:
            self._to_all.close()
