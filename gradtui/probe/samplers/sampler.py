"""The sampler thread: calls each sampler at the sampler's own period and emits its events. A daemon thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from gradtui.protocol.events import Event
from gradtui.system.own_thread import OwnThread

_SLEEP_AT_MOST_S = 0.5


class Sampler(Protocol):
    """Reads values whose changes cause no event."""

    period_s: float

    def sample(self) -> Event | None:
        """Return the event to emit now, or None. May raise: the thread then removes this sampler."""
        ...


class SamplerThread:
    """Runs samplers until stopped. Calls `failed` once for each sampler that raised."""

    def __init__(
        self, samplers: Iterable[Sampler], emit: Callable[[Event], None], failed: Callable[[str, str], None]
    ) -> None:
        self._due = dict.fromkeys(samplers, monotonic())
        """The time at which each sampler is called next."""
        self._added: deque[Sampler] = deque()
        self._emit = emit
        self._failed = failed
        self._stop = threading.Event()
        self._thread = OwnThread(self._run, "gradtui-sampler")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, sampler: Sampler) -> None:
        """Call another sampler, too. Any thread."""
        self._added.append(sampler)

    def stop(self) -> None:
        """Stop the thread, and wait for a reading in progress (only briefly if the driver hangs)."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while not self._stop.is_set() and (self._due or self._added):
            now = monotonic()
            while self._added:
                self._due[self._added.popleft()] = now
            for sampler in [sampler for sampler, due in self._due.items() if due <= now]:
                self._sample(sampler)
            pause = min(self._due.values(), default=now) - monotonic()
            self._stop.wait(min(_SLEEP_AT_MOST_S, max(0.01, pause)))

    def _sample(self, sampler: Sampler) -> None:
        try:
            event = sampler.sample()
        except Exception as error:  # noqa: BLE001 - a driver's failure costs its numbers, nothing else
            del self._due[sampler]
            self._failed(type(sampler).__name__, f"{type(error).__name__}: {error}")
            return
        if event is not None:
            self._emit(event)
        self._due[sampler] = monotonic() + sampler.period_s
