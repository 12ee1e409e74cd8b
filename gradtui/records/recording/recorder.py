"""Write the events of a run to a file, on a thread of its own. What it cannot take it drops and counts: it never blocks."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradtui.protocol.event_rows import EventWriter
from gradtui.protocol.events import DeviceFound, Event, Measurement, ProbeFailed, TorchImported
from gradtui.protocol.json_text import to_line
from gradtui.records.recording.files import FORMAT, KEY, RecordingError, create
from gradtui.records.recording.thinning import Thinning
from gradtui.system.own_thread import OwnThread

_WRITE_S = 0.25
"""Seconds between two writings."""
_MAX_WAITING = 100_000
"""The most events that wait while the disk hangs. Measurements beyond them are dropped."""
_END_S = 10.0
"""Seconds that the end of the run waits for the last writing."""


class Recorder:
    """Writes a recording.

    Args:
        path: the file; compressed if its name ends in `.zst`.
        header: what the header says besides the format.
        emit: receives an event if writing fails.
        limit: bytes that the file may have. Beyond them older measurements are thinned out.

    Raises:
        RecordingError: the file cannot be written.
    """

    def __init__(self, path: Path, header: dict[str, Any], emit: Callable[[Event], None], limit: int = 1 << 62) -> None:
        self.path = path
        self._emit, self._limit = emit, limit
        # Thinning replaces the file, which a link stays to.
        file = Path(os.path.realpath(path))
        self._sink = create(file)
        self._writer = EventWriter()
        self._waiting: deque[Sequence[Event]] = deque()
        self._taken = self._written = 0
        """Events that came, and that were written. Each number is changed on one thread only."""
        self._dropped = self._left_out = 0
        self._newest: Event | None = None
        self._thinning = Thinning(file, limit)
        self._stop = threading.Event()
        self._has_failed = False
        self._owner = os.getpid()
        self._thread = OwnThread(self._run, "gradtui-recorder")
        try:
            self._sink.write(to_line({KEY: FORMAT, **header}).encode() + b"\n")
        except OSError as error:
            raise RecordingError(f"cannot write {path}: {error.strerror or error}") from None

    def start(self) -> None:
        """Begin to write."""
        self._owner = os.getpid()
        self._thread.start()

    def take(self, events: Sequence[Event]) -> None:
        """Take the events that a viewer has drained. Never blocks."""
        if self._has_failed or self._stop.is_set():
            return
        if self._taken - self._written > _MAX_WAITING:
            kept = [event for event in events if not isinstance(event, Measurement)]
            self._dropped += len(events) - len(kept)
            events = kept
        self._taken += len(events)
        self._waiting.append(events)

    def finish(self, dropped: int = 0) -> None:
        """Write what is left, with the number of events that were dropped before they came here, and close the file."""
        if os.getpid() != self._owner:
            return
        self._dropped += dropped
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            self._write_until_the_end()
        except OSError as error:
            self._fail(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - an error of gradtui ends the recording, not the run
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self._thinning.stop()

    def _write_until_the_end(self) -> None:
        while not self._stop.wait(_WRITE_S):
            self._write_waiting()
            self._sink = self._thinning.go_on(self._sink)
        self._write_waiting()
        dropped = self._dropped + self._left_out
        if dropped:
            self._sink.write(to_line({"dropped": dropped}).encode() + b"\n")
        self._sink.close()

    def _fail(self, reason: str) -> None:
        self._has_failed = True
        self._waiting.clear()
        at, step = (self._newest.at, self._newest.step) if self._newest is not None else (0.0, 0)
        self._emit(ProbeFailed(at, step, "recording", f"{self.path} ends here: {reason}", True))

    def _write_waiting(self) -> None:
        lines: list[str] = []
        is_full = self._sink.size >= self._limit
        while self._waiting:
            events = self._waiting.popleft()
            self._written += len(events)
            for event in events:
                if is_full and isinstance(event, Measurement):
                    self._left_out += 1
                else:
                    lines += self._lines(event)
                    self._newest = event
        if lines:
            self._sink.write("".join(f"{line}\n" for line in lines).encode())

    def _lines(self, event: Event) -> list[str]:
        lines = list(self._writer.lines(event))
        if isinstance(event, TorchImported):
            # The device is an assumption until a model is found.
            lines.append(to_line({"torch": event.version, "device": event.device}))
        elif isinstance(event, DeviceFound):
            lines.append(to_line({"device": event.device}))
        return lines
