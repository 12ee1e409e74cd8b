"""Read a recording: its header, its events, and what is wrong with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import Event, RunEnded
from gradtui.protocol.json_values import NotReadableError
from gradtui.records.recording.files import FORMAT, KEY, RecordingError, begins_as_recording, read_lines
from gradtui.run.text.units import plural


class Recording:
    """A recording in a file. It is read as its events are iterated over.

    Args:
        path: the file.

    Raises:
        RecordingError: the file cannot be read, or is no recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        """What the header says, and what later lines add."""
        self.is_complete = False
        """Whether the end of the run was read."""
        self._reader = EventReader(self.header)
        self._lines = read_lines(path)
        self._damaged = 0
        self._is_cut = False
        try:
            # The first line of another file may be the whole file.
            line, _ = next(self._lines, (b"", False)) if begins_as_recording(path) else (b"", False)
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror or error}") from None
        with contextlib.suppress(NotReadableError):
            self._reader.read(line)
        if not isinstance(self.header.get(KEY), int):
            raise RecordingError(f"{path} is no recording; gradtui --record FILE SCRIPT writes one")

    def events(self) -> Iterator[Event]:
        """Yield the events in their order, once. Lines that cannot be read are left out and counted."""
        return (event for event, _ in self.rows())

    def again(self, line: bytes) -> Event:
        """Return the event of a line that `rows` has yielded."""
        event = self._reader.read(line)
        assert event is not None
        return event

    def rows(self) -> Iterator[tuple[Event, bytes]]:
        """Yield the events as `events` does, each with its line."""
        for line, is_whole in self._lines:
            if not is_whole:
                self._is_cut = True
            try:
                event = self._reader.read(line) if line else None
            except NotReadableError:
                self._damaged += is_whole
                continue
            if event is not None:
                self.is_complete |= isinstance(event, RunEnded)
                yield event, line

    @property
    def dropped(self) -> int:
        """How many measurements the writer of the file has dropped."""
        dropped = self.header.get("dropped", 0)
        return dropped if isinstance(dropped, int) else 0

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with the file as far as it was read, in words, a line each."""
        found = []
        version = self.header[KEY]
        unknown = sum(self._reader.unknown.values())
        if version > FORMAT:
            found.append(
                f"format {version} is newer than {FORMAT}, the format of this gradtui: it shows what it can read; upgrade it"
            )
        if unknown:
            names = ", ".join(sorted(self._reader.unknown)[:3])
            found.append(f"{plural(unknown, 'event')} left out, which this gradtui does not know ({names})")
        if self._damaged:
            found.append(f"{plural(self._damaged, 'damaged line')} left out")
        if self._is_cut:
            found.append("the recording ends in the middle of a line: it is cut off, or damaged")
        elif not self.is_complete:
            found.append("the recording ends before the run does: the run was killed, or is still running")
        return tuple(found)
