"""Define the results of a command: what it changed, why it was refused, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.freezes import Changed
from gradtui.protocol.vocabulary import HeldStep


@dataclass(frozen=True)
class CommandResult:
    """The changes that a command made."""

    text: str
    parameters: tuple[int, ...]
    undo: Callable[[], CommandResult] | None = field(default=None, compare=False)
    """Undoes the change at a later boundary. Raises `CommandRefused` if it cannot. Keeps no object of the script alive."""
    changed: tuple[Changed, ...] = ()
    """What the command froze and unfroze, in order."""
    is_measured: bool = False
    """Whether its effect on memory and time is to be measured, although it froze and unfroze nothing."""
    undone: int | None = None
    """The id of the command that it has undone, if it is an undo."""


@dataclass(frozen=True)
class Hold:
    """Why the training thread is held."""

    reason: str = ""
    """In words; empty if the user asked."""
    breakpoints: tuple[int, ...] = ()
    """The ids of the breakpoints that were reached."""
    held_step: HeldStep | None = None
    """The optimizer's step that has not run yet; None at a step boundary."""


class CommandRefused(Exception):  # noqa: N818 - it is an answer, not an error
    """Raised for a command that would break the run or that cannot be carried out; the message says why."""


class AnsweredLater(Exception):  # noqa: N818 - it is no error
    """Raised by the handler of a command that the run answers only when it is over."""


class TargetGone(CommandRefused):
    """Raised for an undo whose target no longer exists or has been set back already, which will not change later."""


class NothingToDo(CommandRefused):
    """Raised for a command whose effect is in force already."""


class RunStopped(SystemExit):
    """Ends the script as `sys.exit(0)` would: the user asked for it, or the number of steps is reached.

    Another exit code says that the run could not be what was asked for.
    """

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)


Handler = Callable[[Any], CommandResult]
"""Carries out one kind of command. Raises `CommandRefused` and changes nothing where it cannot."""
