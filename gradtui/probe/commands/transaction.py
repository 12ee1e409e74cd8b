"""Apply several changes as one command: all of them or none, undone together. Training thread only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtui.probe.runtime import CommandResult, NothingToDo

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
        except NothingToDo as so_already:
            idle = so_already
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
        (lambda: in_order(undos)) if undos else None,
        tuple(changed for each in done for changed in each.changed),
    )
