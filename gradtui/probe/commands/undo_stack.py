"""The commands that the user can undo, latest first. Training thread only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gradtui.probe.runtime import CommandRefused, CommandResult, TargetGone

MOST = 100
"""Maximum number of commands that can be undone."""


class UndoStack:
    """Keeps the undo functions of applied commands."""

    def __init__(self) -> None:
        self._undos: deque[tuple[str, Callable[[], CommandResult]]] = deque(maxlen=MOST)

    def applied(self, applied: CommandResult) -> None:
        """Store the undo function of an applied command, if it has one."""
        if applied.undo is not None:
            self._undos.append((applied.text, applied.undo))

    def take_back(self) -> CommandResult:
        """Undo the latest command. Raises `CommandRefused` if there is none, or if it cannot be undone.

        A refused undo stays on the stack, since its obstacle may go away. If nothing is left of what the command changed, it is
        removed and `TargetGone` is raised.
        """
        if not self._undos:
            raise CommandRefused("there is nothing to undo")
        text, undo = self._undos[-1]
        try:
            done = undo()
        except CommandRefused as refusal:
            if isinstance(refusal, TargetGone):
                self._undos.pop()
            kind = TargetGone if isinstance(refusal, TargetGone) else CommandRefused
            raise kind(f"{text.partition(':')[0]} cannot be undone: {refusal}") from None
        self._undos.pop()
        return done
