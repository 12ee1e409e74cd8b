"""Undo commands, latest first, and the parts of a command that fails half way. Training thread only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo, TargetGone
from gradtui.run.text import refusals
from gradtui.run.text.effects import title_of_answer

Change = Callable[[], CommandResult]


def in_order(changes: Sequence[Change]) -> CommandResult:
    """Apply changes in order; if one raises, undo those before it and raise the same exception.

    A change that raises `NothingToDo` is left out. If all do, the last `NothingToDo` is raised. The result names the parameters
    of all changes. Its `undo` undoes all of them as one, latest first.
    """
    done: list[CommandResult] = []
    idle: NothingToDo | None = None
    for change in changes:
        try:
            done.append(change())
        except NothingToDo as nothing:
            idle = nothing
        except BaseException:
            for earlier in reversed(done):
                if earlier.undo is not None:
                    earlier.undo()
            raise
    if not done and idle is not None:
        raise idle
    parameters = tuple(dict.fromkeys(index for each in done for index in each.parameters))
    undos = [each.undo for each in reversed(done) if each.undo is not None]
    return CommandResult(
        "; ".join(each.text for each in done),
        parameters,
        partial(in_order, undos) if undos else None,
        tuple(changed for each in done for changed in each.changed),
        any(each.is_measured for each in done),
    )


MAX = 100
"""Maximum number of commands that can be undone."""


class UndoStack:
    """Keeps the undo functions of applied commands, with the ids of the commands."""

    def __init__(self) -> None:
        self._undos: deque[tuple[int, str, Change]] = deque(maxlen=MAX)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the commands whose changes are in force, in their order."""
        return tuple(command for command, *_ in self._undos)

    def applied(self, command: int, applied: CommandResult) -> None:
        """Store the undo function of an applied command with this id, if it has one."""
        if applied.undo is not None:
            self._undos.append((command, applied.text, applied.undo))

    def refuse(self) -> None:
        """Raise `CommandRefused` if there is no command to undo."""
        if not self._undos:
            raise CommandRefused(refusals.NOTHING_TO_UNDO)

    def take_back(self) -> CommandResult:
        """Undo the latest command. Raises `CommandRefused` if there is none, or if it cannot be undone.

        A refused undo stays on the stack, since its obstacle may go away. If nothing is left of what the command changed, it is
        removed and `TargetGone` is raised.
        """
        self.refuse()
        command, text, undo = self._undos[-1]
        try:
            done = undo()
        except CommandRefused as refusal:
            answer = refusals.cannot_be_undone(title_of_answer(text), refusal)
            if not isinstance(refusal, TargetGone):
                raise CommandRefused(answer) from None
            self._undos.pop()
            raise TargetGone(answer) from None
        self._undos.pop()
        return replace(done, undone=command)
