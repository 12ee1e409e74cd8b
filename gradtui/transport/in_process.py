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
from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from operator import itemgetter

from gradtui.protocol.commands import Command
from gradtui.protocol.events import Event, Measurement, Progress

_Queue = deque[tuple[int, Event]]
Take = Callable[[Sequence[Event]], None]


class EventQueue:
    """Queued events for one viewer.

    A full queue drops the oldest measurement, and counts it. `Progress` events arrive at a steady rate and have a separate
    queue: many measurements would otherwise displace them, and their counts would be lost. All other events are rare and stay
    until they are drained, because later ones depend on them. `drain` merges the queues in order of arrival.
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
        self._takers: tuple[Take, ...] = ()
        self._changing = threading.Lock()

    @property
    def dropped(self) -> int:
        """Number of events that were dropped before they were drained."""
        if self._closed:
            return 0
        return max(0, self._arrived - self._taken - sum(map(len, self._queues)))

    def close(self) -> None:
        """Discard all queued and later events, because the viewer is gone."""
        self._closed = True
        for queue in self._queues:
            queue.clear()

    def put(self, event: Event) -> None:
        """Queue an event. Never blocks, never raises."""
        if self._closed:
            return
        queue = self._facts
        if isinstance(event, Measurement):
            queue = self._measurements
        elif isinstance(event, Progress):
            queue = self._progress
        # Counting by `+= 1` would lose counts when two threads put at once; `next` of the iterator is atomic.
        self._arrived = arrival = next(self._arrivals)
        queue.append((arrival, event))

    def follow(self, take: Take) -> None:
        """Let `take` receive the events that the viewer has drained and applied, in its order, on its thread.

        It must not block. Any thread."""
        with self._changing:
            self._takers = (*self._takers, take)

    def leave(self, take: Take) -> None:
        """Let `take` receive no more events. Any thread."""
        with self._changing:
            self._takers = tuple(each for each in self._takers if each != take)

    def seen(self, events: Sequence[Event]) -> None:
        """Pass on what the viewer has drained and applied, with what it adds."""
        for take in self._takers if events else ():
            take(events)

    def drain(self, limit: int = 10_000) -> list[Event]:
        """Remove and return up to `limit` waiting events in the order they were put."""
        batch: list[Event] = []
        while len(batch) < limit:
            (oldest, queue), (next_oldest, _) = sorted(
                ((_first(each), each) for each in self._queues), key=itemgetter(0)
            )[:2]
            if oldest == math.inf:
                break
            _take(queue, next_oldest, limit, batch)
        self._taken += len(batch)
        return batch


def _first(queue: _Queue) -> float:
    """Return the arrival number of the oldest event of a queue; infinity if there is none."""
    try:
        return queue[0][0]
    except IndexError:
        return math.inf


def _take(queue: _Queue, before: float, limit: int, into: list[Event]) -> None:
    """Move the events that arrived earlier than `before` from the queue into `into`."""
    # An event of another thread may displace the oldest at any moment, so the queue may be empty after the check.
    with contextlib.suppress(IndexError):
        while len(into) < limit and queue[0][0] < before:
            into.append(queue.popleft()[1])


class CommandQueue:
    """Queued commands for the training thread, which removes them at a step boundary."""

    def __init__(self) -> None:
        self.closed = False
        self._queue: deque[Command] = deque()
        self.waiting: Sized = self._queue
        """Its length tells whether a command waits: the training thread checks every step, which on a deque runs no Python
        code."""
        self._ids = itertools.count(1)
        self._arrived = threading.Event()

    def submit(self, make: Callable[[int], Command], origin: str = "keyboard", id_: int | None = None) -> Command:
        """Build a command with a new id and queue it. `make` is usually a lambda around a command's class.

        Args:
            make: builds the command from its id.
            origin: who sends it.
            id_: an id that no other command of the run has; None takes the next one.
        """
        command = replace(make(next(self._ids) if id_ is None else id_), origin=origin)
        self._queue.append(command)
        self._arrived.set()
        return command

    def close(self) -> None:
        """Close the queue because the viewer is gone: no more commands will arrive, and none could release a held run."""
        self.closed = True
        self._arrived.set()

    def reopen(self) -> None:
        """A viewer in another process sends commands, and can release a held run."""
        self.closed = False

    def wait(self, seconds: float) -> None:
        """Wait for a command, for the queue to be closed, or for the time to pass."""
        if not (self._queue or self.closed):
            self._arrived.wait(seconds)
        self._arrived.clear()

    def __len__(self) -> int:
        return len(self._queue)

    def take(self) -> Command | None:
        """Remove and return the oldest waiting command, or None."""
        try:
            return self._queue.popleft()
        except IndexError:
            return None
