"""The two ends that a run and a viewer hold: where events go to and come from, where commands go to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gradtui.protocol.commands import Command
from gradtui.protocol.events import Event


class EventSource(Protocol):
    """Where a viewer gets its events."""

    @property
    def dropped(self) -> int:
        """How many measurement events were dropped because nobody drained them in time."""
        ...

    def drain(self, limit: int) -> Sequence[Event]:
        """Take up to `limit` waiting events, oldest first; empty when there are none."""
        ...


class CommandSink(Protocol):
    """Where a viewer sends its commands."""

    def submit(self, make: Callable[[int], Command]) -> Command:
        """Give the command that `make` builds a fresh id, queue it, and return it."""
        ...
