"""Bounded queues between the training thread, the sampler thread and one viewer in the same process.

`put` and `submit` may be called from any thread; `drain` from one consumer at a time. Appending to and popping from a
deque is atomic under the GIL and under the per-object locks of the free-threaded build, so no lock is held on the hot path.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable

from gradtui.protocol.commands import Command
from gradtui.protocol.events import (
    DeviceSampled,
    Event,
    GradientsMeasured,
    LedgerTaken,
    PhaseSampled,
    SavedBytesMeasured,
)

_MEASUREMENTS = (GradientsMeasured, LedgerTaken, PhaseSampled, SavedBytesMeasured, DeviceSampled)


class EventQueue:
    """Events on their way to one viewer.

    Measurements have a bounded queue of their own, so that a flood of them never pushes out structure or the answer to
    a command; where a queue is full the oldest gives way and is counted. The two are merged in order of arrival.
    """

    def __init__(self, capacity: int = 20_000) -> None:
        self._measurements: deque[tuple[int, Event]] = deque(maxlen=capacity)
        self._facts: deque[tuple[int, Event]] = deque(maxlen=capacity)
        self._arrivals = itertools.count()
        self._taken = 0
        self._put = 0
        self._closed = False

    @property
    def dropped(self) -> int:
        """Events that gave way before they were drained."""
        return max(0, self._put - self._taken - len(self._measurements) - len(self._facts))

    def close(self) -> None:
        """Forget what is queued and whatever is still put: the viewer is gone."""
        self._closed = True
        self._measurements.clear()
        self._facts.clear()
        self._put = self._taken = 0

    def put(self, event: Event) -> None:
        """Queue an event; never blocks, never raises."""
        if self._closed:
            return
        queue = self._measurements if isinstance(event, _MEASUREMENTS) else self._facts
        self._put += 1
        queue.append((next(self._arrivals), event))

    def drain(self, limit: int = 10_000) -> list[Event]:
        """Take up to `limit` waiting events in the order they were put."""
        batch: list[tuple[int, Event]] = []
        self._taken += _take(self._measurements, limit, batch) + _take(self._facts, limit, batch)
        batch.sort(key=lambda entry: entry[0])
        return [event for _, event in batch]


def _take(queue: deque[tuple[int, Event]], limit: int, into: list[tuple[int, Event]]) -> int:
    taken = 0
    while taken < limit:
        try:
            into.append(queue.popleft())
        except IndexError:
            break
        taken += 1
    return taken


class CommandQueue:
    """Commands on their way to the training thread, which takes them at a step boundary."""

    def __init__(self) -> None:
        self.closed = False
        self._queue: deque[Command] = deque()
        self._ids = itertools.count(1)
        self._arrived = threading.Event()

    def submit(self, make: Callable[[int], Command]) -> Command:
        """Build the command with a fresh id and queue it; `make` is usually a lambda around a command's class."""
        command = make(next(self._ids))
        self._queue.append(command)
        self._arrived.set()
        return command

    def close(self) -> None:
        """The viewer is gone: nobody will send anything more, and nobody could release a held run."""
        self.closed = True
        self._arrived.set()

    def wait(self, seconds: float) -> None:
        """Wait for a command, for the queue to be closed, or for the time to pass."""
        self._arrived.wait(seconds)
        self._arrived.clear()

    def __len__(self) -> int:
        return len(self._queue)

    def take(self) -> Command | None:
        """The oldest waiting command, or None."""
        try:
            return self._queue.popleft()
        except IndexError:
            return None
