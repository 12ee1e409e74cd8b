"""Bounded queues between the training thread, the sampler thread and one viewer in the same process.

`put` and `submit` may be called from any thread; `drain` from one consumer at a time. Appending to and popping from a
deque is atomic under the GIL and under the per-object locks of the free-threaded build, so no lock is held on the hot path.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Sized

from gradtui.protocol.commands import Command
from gradtui.protocol.events import Event, Measurement, Progress

_Queue = deque[tuple[int, Event]]


class EventQueue:
    """Events on their way to one viewer.

    A full queue drops the oldest measurement, and counts it. `Progress` comes at a steady rate and has a queue of its own: what
    it adds up would be lost in a flood of measurements. All other events are rare and stay until they are drained, since each
    later one builds on them. The queues are merged in order of arrival.
    """

    def __init__(self, capacity: int = 20_000) -> None:
        self._measurements: _Queue = deque(maxlen=capacity)
        self._progress: _Queue = deque(maxlen=capacity)
        self._facts: _Queue = deque()
        self._queues = self._measurements, self._progress, self._facts
        self._arrivals = itertools.count(1)
        self._arrived = 0
        self._taken = 0
        self._closed = False

    @property
    def dropped(self) -> int:
        """Events that gave way before they were drained."""
        if self._closed:
            return 0
        return max(0, self._arrived - self._taken - sum(map(len, self._queues)))

    def close(self) -> None:
        """Forget what is queued and whatever is still put: the viewer is gone."""
        self._closed = True
        for queue in self._queues:
            queue.clear()

    def put(self, event: Event) -> None:
        """Queue an event; never blocks, never raises."""
        if self._closed:
            return
        queue = self._facts
        if isinstance(event, Measurement):
            queue = self._measurements
        elif isinstance(event, Progress):
            queue = self._progress
        # Counting by `+= 1` would lose some when two threads put at once; the iterator's own step is atomic.
        self._arrived = arrival = next(self._arrivals)
        queue.append((arrival, event))

    def drain(self, limit: int = 10_000) -> list[Event]:
        """Take up to `limit` waiting events in the order they were put."""
        batch: list[Event] = []
        while len(batch) < limit:
            (oldest, queue), (next_oldest, _) = sorted(((_first(each), each) for each in self._queues), key=_arrival)[
                :2
            ]
            if oldest == math.inf:
                break
            _take(queue, next_oldest, limit, batch)
        self._taken += len(batch)
        return batch


def _arrival(first: tuple[float, _Queue]) -> float:
    return first[0]


def _first(queue: _Queue) -> float:
    """When the oldest event of a queue arrived; infinity if there is none."""
    try:
        return queue[0][0]
    except IndexError:
        return math.inf


def _take(queue: _Queue, before: float, limit: int, into: list[Event]) -> None:
    """Take the events that arrived earlier than `before`."""
    # Another thread's event may push the oldest out at any moment, so the queue may be empty after a look.
    with contextlib.suppress(IndexError):
        while len(into) < limit and queue[0][0] < before:
            into.append(queue.popleft()[1])


class CommandQueue:
    """Commands on their way to the training thread, which takes them at a step boundary."""

    def __init__(self) -> None:
        self.closed = False
        self._queue: deque[Command] = deque()
        self.waiting: Sized = self._queue
        """Whether anything waits: the training thread asks at every step, and a deque answers without Python code."""
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
        if not (self._queue or self.closed):
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
