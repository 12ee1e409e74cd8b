"""What comes of a command: what it changed, why it was refused, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradtui.protocol.vocabulary import Changed


@dataclass(frozen=True)
class CommandResult:
    """What a command changed."""

    text: str
    parameters: tuple[int, ...]
    undo: Callable[[], CommandResult] | None = field(default=None, compare=False)
    """Undoes the change at a later boundary. Raises `CommandRefused` if it cannot. Keeps no object of the script alive."""
    changed: tuple[Changed, ...] = ()
    """What was frozen and unfrozen, in order."""


class CommandRefused(Exception):  # noqa: N818 - it is an answer, not an error
    """A command that would break the run or that cannot be carried out; the message says why."""


class TargetGone(CommandRefused):
    """What would be taken back is no more, or has been set back already: that will not change."""


class NothingToDo(CommandRefused):
    """A command that asks for what is so already."""


class RunStopped(SystemExit):
    """Ends the script as `sys.exit(0)` would: the person asked for it, or the number of steps is reached.

    Another exit code says that the run could not be what was asked for.
    """

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)


Handler = Callable[[Any], CommandResult]
"""Carries out one kind of command. Raises `CommandRefused` and changes nothing where that cannot be."""
