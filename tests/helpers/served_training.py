"""A run with a plain reporter that other processes can ask, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradtui.launch.attach_screen import AttachedRun
from gradtui.protocol import events as ev
from gradtui.remote.live.answers import LiveRun
from gradtui.remote.serving.client import ask
from gradtui.run.diagnostics import FindingTracker
from gradtui.runner.plain import PlainReporter
from gradtui.transport.in_process import CommandQueue, EventQueue
from helpers.listening import address, run_server


class Training:
    """A run with a plain reporter that other processes can ask. No thread drains its events: every request does."""

    def __init__(self, directory: Path, *, writable: bool = True) -> None:
        self.directory = directory
        self.events, self.commands = EventQueue(), CommandQueue()
        self.reporter = PlainReporter(self.events, FindingTracker())
        self.live = LiveRun(self.reporter.look, self.events, self.commands if writable else None, "coop_like.py", None)
        self.server = run_server(directory, self.live.answers)
        self.server.start()

    def emit(self, *events: ev.Event) -> None:
        for event in events:
            self.events.put(event)

    def ask(self, what: str, **more: Any) -> Any:
        return ask(address(self.directory, self.server), what, **more)

    def end(self) -> None:
        self.reporter.drain()
        self.live.finish()
        self.server.wait_for_streams(10.0)
        self.server.close()


def received(run: AttachedRun) -> list[ev.Event]:
    """Return all that a viewer receives until its run ends."""
    run.events.put = (found := []).append  # type: ignore[method-assign]
    run._receive()
    return found
