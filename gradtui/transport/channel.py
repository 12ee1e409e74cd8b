"""Interfaces between a run and a viewer: the source of events and the sink of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gradtui.protocol.commands import Command
from gradtui.protocol.events import Event


class EventSource(Protocol):
    """The source of a viewer's events."""

    @property
    def dropped(self) -> int:
        """Number of measurement events that were dropped because they were not drained in time."""
        ...

    def drain(self, limit: int) -> Sequence[Event]:
        """Remove and return up to `limit` waiting events, oldest first; empty if there are none."""
        ...


class CommandSink(Protocol):
    """The sink for a viewer's commands."""

    def submit(self, make: Callable[[int], Command]) -> Command:
        """Build a command by calling `make` with a new id, queue it, and return it."""
        ...
