"""What one viewer in another process has not received yet."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence

from gradtui.protocol.event_rows import EventWriter
from gradtui.protocol.events import Event, Measurement, Progress
from gradtui.protocol.joined_progress import joined
from gradtui.protocol.json_text import to_line

MAX_WAITING = 20_000
"""Events that wait for a viewer that does not read. Beyond them measurements are dropped and counted, and steps are added up.
At twice as many other events the viewer is given up."""
_ALIVE_S = 1.0
"""Seconds after which a viewer that has received nothing hears that the run is alive."""


class Follower:
    """Takes events on the thread of the run's first viewer, and gives their lines on the thread of a connection."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[Event]] = deque()
        self._count = 0
        self._dropped = 0
        self._progress: Progress | None = None
        """The steps of the events that came beyond the bound: a viewer adds up what it receives, so none may be missing."""
        self._changed = threading.Condition()
        self._is_ending = False
        self.is_over = False
        """Whether the viewer is gone, or was given up."""

    def take(self, events: Sequence[Event]) -> None:
        """Take events. It waits for nothing but the lock of this object, which nobody keeps for long."""
        with self._changed:
            if self.is_over:
                return
            if self._count > MAX_WAITING:
                events = self._without_measurements(events)
            self._count += len(events)
            self._waiting.append(events)
            if self._count > 2 * MAX_WAITING:
                self._give_up()
            self._changed.notify()

    def finish(self) -> None:
        """The run has ended: `lines` ends when all that waits has been given."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def leave(self) -> None:
        """The viewer is gone."""
        with self._changed:
            self._give_up()

    def lines(self) -> Iterator[list[str]]:
        """Yield the lines of what has arrived, as those of a recording. An empty object says that the run is alive."""
        writer, told = EventWriter(), 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_ending or self.is_over, _ALIVE_S)
                if self.is_over or (self._is_ending and not self._waiting):
                    return
                batches, self._count, dropped = list(self._waiting), 0, self._dropped
                self._waiting.clear()
                if self._progress is not None:
                    batches.append([self._progress])
                    self._progress = None
            lines = [line for events in batches for event in events for line in writer.lines(event)]
            if dropped != told:
                lines.append(to_line({"dropped": dropped}))
                told = dropped
            yield lines or ["{}"]

    def _without_measurements(self, events: Sequence[Event]) -> list[Event]:
        kept: list[Event] = []
        for event in events:
            if isinstance(event, Progress):
                self._progress = joined(self._progress, event) if self._progress is not None else event
            elif isinstance(event, Measurement):
                self._dropped += 1
            else:
                kept.append(event)
        return kept

    def _give_up(self) -> None:
        self.is_over = True
        self._progress = None
        self._waiting.clear()
        self._count = 0
        self._changed.notify()
