"""Notice that the script has initialised, or destroyed, the default process group. Training thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import distributed

from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import ProcessGroupFound


class ProcessGroupWatch:
    """Emits `ProcessGroupFound` for each default process group, and passes its number of ranks to `changed`: 1 for no group.

    No communication.
    """

    def __init__(self, context: ProbeContext, changed: Callable[[int], None]) -> None:
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._guarded = context.hooks.guarded("ranks")
        self._changed = changed
        self._known: weakref.ref[Any] | None = None

    def look(self) -> None:
        """Compare the default process group with that of the last call. Called at each step boundary."""
        group = distributed.group.WORLD if distributed.is_available() and distributed.is_initialized() else None
        # A group that was destroyed may be freed too.
        if group is not None if self._known is None else group is None or group is not self._known():
            with self._guarded:
                self._follow(group)

    def _follow(self, group: Any | None) -> None:
        self._known = weakref.ref(group) if group is not None else None
        ranks = 1
        if group is not None:
            ranks, step = distributed.get_world_size(), self._counter.steps
            found = distributed.get_rank(), ranks, str(distributed.get_backend())
            self._emit(ProcessGroupFound(self._clock.at(), step, *found))
        self._changed(ranks)
