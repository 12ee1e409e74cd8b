"""The dashboard of a recording. The main thread waits for the user to leave."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gradtui.configuration import Configuration
from gradtui.printable import write_line
from gradtui.protocol.commands import Command, Watch
from gradtui.protocol.events import CommandRejected, Event, EventsEnded
from gradtui.recording import Recording, tracker_of
from gradtui.runner.terminal import ControllingTerminal
from gradtui.tui.terminal import UiThread

if TYPE_CHECKING:
    from gradtui.transport.in_process import CommandQueue, EventQueue
    from gradtui.tui.app.app import GradtuiApp

REFUSAL = "this is a recording; nothing can be changed in it"
_CUT = "the recording ends before the run does"
_AT_ONCE = 4_000
"""The most events between two redraws: the screen answers keys while a long recording is read."""


class RecordedEvents:
    """Gives the events of a recording to a viewer, as `EventQueue` does with those of a live run. UI thread only."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._events = recording.events()
        self._first: deque[Event] = deque()
        self._newest: Event | None = None
        self._is_at_end = False

    @property
    def dropped(self) -> int:
        """How many measurements the writer of the recording has dropped."""
        return self._recording.dropped

    def drain(self, limit: int = _AT_ONCE) -> list[Event]:
        """Return the next events."""
        first = [self._first.popleft() for _ in range(len(self._first))]
        read = list(islice(self._events, min(limit, _AT_ONCE)))
        self._newest = read[-1] if read else self._newest
        if not read and not self._is_at_end:
            self._is_at_end = True
            if not self._recording.is_complete:
                at, step = (self._newest.at, self._newest.step) if self._newest is not None else (0.0, 0)
                first.append(EventsEnded(at, step, _CUT))
        return [*first, *read]

    def seen(self, events: Sequence[Event]) -> None:
        """Nobody follows this viewer."""

    def refuse(self, command: Command) -> None:
        """Let the viewer read that a command is refused."""
        at, step = (self._newest.at, self._newest.step) if self._newest is not None else (0.0, 0)
        self._first.append(CommandRejected(at, step, command, REFUSAL))


class NoCommands:
    """Refuses every command but those that only ask for more measurements, which nobody misses."""

    def __init__(self, source: RecordedEvents) -> None:
        self._source = source
        self._ids = itertools.count(1)

    def submit(self, make: Callable[[int], Command]) -> Command:
        """Make the command, and refuse it."""
        command = make(next(self._ids))
        if not isinstance(command, Watch):
            self._source.refuse(command)
        return command


def replay_screen(path: Path, settings: Configuration) -> None:
    """Show the dashboard of a recording until the user leaves it.

    Raises:
        RecordingError: the file is no recording, or cannot be read.
    """
    recording = Recording(path)
    thread = UiThread(lambda: app_of(recording, settings), ControllingTerminal())
    thread.start()
    try:
        thread.join()
    finally:
        thread.stop()
    for trouble in recording.troubles:
        write_line(f"{path}: {trouble}")
    if thread.crash is not None:
        write_line("the dashboard failed")
        for line in thread.crash.splitlines():
            write_line(line)


def app_of(recording: Recording, settings: Configuration) -> GradtuiApp:
    """Make the dashboard of a recording."""
    from gradtui.tui.app.app import GradtuiApp

    source = RecordedEvents(recording)
    return GradtuiApp(
        cast("EventQueue", source),
        cast("CommandQueue", NoCommands(source)),
        ui_budget=1.0,
        refresh_hz=settings["refresh"],
        theme=settings["theme"],
        columns=settings["columns"],
        order=settings["order"],
        keys=settings.keys,
        findings=tracker_of(recording),
        role="replay",
    )
