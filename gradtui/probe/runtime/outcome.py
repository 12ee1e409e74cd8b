"""What comes of a command: what it changed, why it was refused, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradtui.protocol.vocabulary import Changed


@dataclass(frozen=True)
class Applied:
    """What a command changed."""

    text: str
    parameters: tuple[int, ...]
    undo: Callable[[], Applied] | None = field(default=None, compare=False)
    """Takes it back at a later boundary. Raises `Refused` where that cannot be. Keeps none of the script's objects alive."""
    changed: tuple[Changed, ...] = ()
    """What was frozen and unfrozen, in order."""


class Refused(Exception):  # noqa: N818 - it is an answer, not an error
    """A command that would break the run or that cannot be carried out; the message says why."""


class Gone(Refused):
    """What would be taken back is no more, or has been set back already: that will not change."""


class AlreadySo(Refused):
    """A command that asks for what is so already."""


class RunStopped(SystemExit):
    """Ends the script as `sys.exit(0)` would: the person asked for it, or the number of steps is reached.

    Another exit code says that the run could not be what was asked for.
    """

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)


Handler = Callable[[Any], Applied]
"""Carries out one kind of command. Raises `Refused` and changes nothing where that cannot be."""
