"""The commands that can be taken back, latest first. Training thread only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gradtui.probe.runtime import CommandRefused, CommandResult, TargetGone

MOST = 100
"""So many commands can be taken back."""


class UndoStack:
    """Remembers how to take back what was applied."""

    def __init__(self) -> None:
        self._undos: deque[tuple[str, Callable[[], CommandResult]]] = deque(maxlen=MOST)

    def applied(self, applied: CommandResult) -> None:
        """A command was applied; what cannot be taken back is not remembered."""
        if applied.undo is not None:
            self._undos.append((applied.text, applied.undo))

    def take_back(self) -> CommandResult:
        """Take the latest one back. Raises `CommandRefused` if there is none, or if it cannot be taken back.

        One that is refused stays, since what is in its way may go, unless nothing is left of what it has changed: then
        `TargetGone` is raised.
        """
        if not self._undos:
            raise CommandRefused("there is nothing to take back")
        text, undo = self._undos[-1]
        try:
            done = undo()
        except CommandRefused as refusal:
            if isinstance(refusal, TargetGone):
                self._undos.pop()
            kind = TargetGone if isinstance(refusal, TargetGone) else CommandRefused
            raise kind(f"{text.partition(':')[0]} cannot be taken back: {refusal}") from None
        self._undos.pop()
        return done
