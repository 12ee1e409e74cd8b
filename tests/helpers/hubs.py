"""What the hub of a viewer emits, and what its ranks receive, for tests that wait for both."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gradtui.protocol import commands
from gradtui.protocol.events import Event
from gradtui.transport.in_process import CommandQueue


class Seen:
    """The events of the hub, which any thread may wait for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def put(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, found: Callable[[Event], bool], count: int = 1) -> list[Event]:
        """Return the first events that match."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(list(filter(found, self.events))) >= count, 10), self.events
            return list(filter(found, self.events))[:count]


def next_command(queue: CommandQueue) -> commands.Command:
    while (command := queue.take()) is None:
        queue.wait(1.0)
    return command
