"""Several changes as one command: all of them or none, and taken back together. Training thread only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtui.probe.runtime import CommandResult, NothingToDo

Change = Callable[[], CommandResult]


def in_order(changes: Sequence[Change]) -> CommandResult:
    """Make changes one after the other; where one raises, those before it are taken back, and it is raised again.

    One that asks for what is so already is left out; where all are, that is raised. The answer names the parameters of all,
    and its `undo` takes all back, latest first, as one.
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
    parameters = tuple(dict.fromkeys(place for each in done for place in each.parameters))
    undos = [each.undo for each in reversed(done) if each.undo is not None]
    return CommandResult(
        "; ".join(each.text for each in done),
        parameters,
        (lambda: in_order(undos)) if undos else None,
        tuple(changed for each in done for changed in each.changed),
    )
