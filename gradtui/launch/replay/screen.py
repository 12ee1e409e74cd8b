"""The dashboard of a recording. The main thread waits for the user to leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gradtui.configuration.in_force import Configuration
from gradtui.launch.replay.player import ReplayPlayer
from gradtui.protocol.commands import Command
from gradtui.records.recording import Recording, tracker_of
from gradtui.runner.terminal import ControllingTerminal
from gradtui.system.printable import write_line
from gradtui.tui.terminal import UiThread

if TYPE_CHECKING:
    from gradtui.transport.in_process import CommandQueue, EventQueue
    from gradtui.tui.app.app import GradtuiApp

_MIN_HZ = 10.0
"""Redraws a second: playing looks like the run, and a long recording is read in more pieces."""


class RecordedRun:
    """Takes the commands of the screen: those that pause and step move through the recording, and others are refused."""

    def __init__(self, player: ReplayPlayer) -> None:
        self._player = player
        self._ids = itertools.count(1)

    def submit(self, make: Callable[[int], Command]) -> Command:
        """Make the command, and do or refuse it."""
        command = make(next(self._ids))
        self._player.submit(command)
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

    player = ReplayPlayer(recording)
    app = GradtuiApp(
        cast("EventQueue", player),
        cast("CommandQueue", RecordedRun(player)),
        refresh_hz=max(settings["refresh"], _MIN_HZ),
        theme=settings["theme"],
        columns=settings["columns"],
        order=settings["order"],
        keys=settings.keys,
        findings=tracker_of(recording),
        role="replay",
        player=player,
    )
    app.run_state.metrics.pinned = settings["pin"]
    return app
