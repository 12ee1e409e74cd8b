"""Several changes as one command: all of them or none, and taken back together. Training thread only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtui.probe.applied import Applied

Change = Callable[[], Applied]


def in_order(changes: Sequence[Change]) -> Applied:
    """Make changes one after the other; where one raises, those before it are taken back, and it is raised again.

    The answer names the parameters of all, and its `undo` takes all back, latest first, as one.
    """
    done: list[Applied] = []
    for change in changes:
        try:
            done.append(change())
        except BaseException:
            for earlier in reversed(done):
                if earlier.undo is not None:
                    earlier.undo()
            raise
    parameters = tuple(dict.fromkeys(place for each in done for place in each.parameters))
    undos = [each.undo for each in reversed(done) if each.undo is not None]
    return Applied(
        "; ".join(each.text for each in done),
        parameters,
        (lambda: in_order(undos)) if undos else None,
        tuple(changed for each in done for changed in each.changed),
    )
