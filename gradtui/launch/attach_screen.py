"""The dashboard of a live run in another process. The main thread waits for the user to leave."""

from __future__ import annotations

import itertools
import os
import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradtui.configuration.in_force import Configuration
from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import Command
from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import CommandRejected, EventsEnded, RunEnded
from gradtui.protocol.json_values import NotReadableError
from gradtui.remote.serving.addresses import Address, UnixAddress
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.diagnostics.selection import rules_with_ids
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import restored
from gradtui.runner.terminal import ControllingTerminal
from gradtui.system.own_thread import OwnThread
from gradtui.system.printable import write_line
from gradtui.transport.in_process import CommandQueue, EventQueue
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.terminal import UiThread


class AttachedRun:
    """A live run in another process: its state when this viewer came, and what happens from then on.

    Args:
        address: where the run is.

    Raises:
        NoAnswerError: the run does not answer, or is one of another version.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._client = Client(address)
        try:
            first = self._client.ask("attach")
            self.state = restored(first["snapshot"])
            self.rules = first["rules"]
            self.first_id = int(first["first_id"])
        except (NotReadableError, KeyError, TypeError, ValueError) as error:
            self._client.close()
            raise NoAnswerError(f"run {address.name} is one of another version of gradtui: {error}") from None
        except NoAnswerError:
            self._client.close()
            raise
        self._header: dict[str, Any] = {}
        self.events = _RemoteEvents(self._header)
        self.commands = _RemoteCommands(self._send, self.first_id)
        self.has_ended = self.state.ended is not None
        self.trouble: str | None = None
        """Why the connection has ended before the run; None if it has not."""
        self._is_closed = False

    def start(self) -> None:
        """Begin to receive events and to send commands."""
        OwnThread(self._receive, "gradtui-receiver").start()
        self.commands.start()

    def close(self) -> None:
        """Leave the run."""
        self._is_closed = True
        self.commands.close()
        self._client.close()

    def _receive(self) -> None:
        reader = EventReader(self._header)
        try:
            for line in self._client.lines():
                event = reader.read(line)
                if event is not None:
                    self.has_ended |= isinstance(event, RunEnded)
                    self.events.put(event)
        except (NoAnswerError, NotReadableError, OSError) as error:
            self.trouble = str(error)
        if not self.has_ended and not self._is_closed:
            self.trouble = self.trouble or "the process of the run is gone"
            self.events.put(EventsEnded(self.state.seconds, self.state.step, self.trouble))

    def _send(self, command: Command) -> None:
        """Send a command. What is wrong with it arrives as its answer."""
        try:
            with Client(self._address) as client:
                client.ask("do", command=to_words(command), id=command.id, client=command.origin)
        except NoAnswerError as error:
            self.events.put(CommandRejected(self.state.seconds, self.state.step, command, str(error)))


class _RemoteEvents(EventQueue):
    def __init__(self, header: dict[str, Any]) -> None:
        super().__init__()
        self._header = header

    @property
    def dropped(self) -> int:
        """What did not arrive here, or was not taken in time."""
        lost = self._header.get("dropped", 0)
        return super().dropped + (lost if isinstance(lost, int) else 0)


class _RemoteCommands(CommandQueue):
    """Sends commands to a run, on a thread of its own: the screen does not wait for the connection."""

    def __init__(self, send: Callable[[Command], None], first_id: int) -> None:
        super().__init__()
        self._send = send
        self._numbers = itertools.count(first_id)
        self._sent: queue.SimpleQueue[Command | None] = queue.SimpleQueue()

    def start(self) -> None:
        OwnThread(self._run, "gradtui-sender").start()

    def submit(self, make: Callable[[int], Command], origin: str = "keyboard", id_: int | None = None) -> Command:
        command = replace(
            make(next(self._numbers) if id_ is None else id_), origin=f"{origin} of process {os.getpid()}"
        )
        self._sent.put(command)
        return command

    def close(self) -> None:
        super().close()
        self._sent.put(None)

    def _run(self) -> None:
        while (command := self._sent.get()) is not None:
            self._send(command)


def attach(address: Address, settings: Configuration, *, returns: bool = True) -> None:
    """Show the dashboard of a live run until the user leaves it.

    Args:
        address: where the run is.
        settings: those in force.
        returns: whether the user can return to it later, which is then said.

    Raises:
        NoAnswerError: the run does not answer.
    """
    run = AttachedRun(address)
    thread = UiThread(lambda: app_of(run, settings), ControllingTerminal())
    run.start()
    thread.start()
    try:
        thread.join()
    finally:
        thread.stop()
        run.close()
    if run.trouble is not None:
        write_line(run.trouble)
    elif not run.has_ended and returns:
        write_line(f"left; to return: gradtui attach {where_text(address)}")
    if thread.crash is not None:
        write_line("the dashboard failed; the run was not touched")
        for line in thread.crash.splitlines():
            write_line(line)


def where_text(address: Address) -> str:
    """Return the options that name a run."""
    return f"--run {address.name}" if isinstance(address, UnixAddress) else f"--connect {address.name}"


def app_of(run: AttachedRun, settings: Configuration) -> GradtuiApp:
    """Make the dashboard of a run."""
    run.state.metrics.pinned = settings["pin"] or run.state.metrics.pinned
    return GradtuiApp(
        run.events,
        run.commands,
        log=_log_of(run.state),
        refresh_hz=settings["refresh"],
        theme=settings["theme"],
        columns=settings["columns"],
        order=settings["order"],
        keys=settings.keys,
        findings=FindingTracker(rules_with_ids(tuple(run.rules) if run.rules is not None else None)),
        state=run.state,
        role="attached",
        alert=settings["alert"],
    )


def _log_of(state: RunState) -> LogTail | JobTail | None:
    """Return the output of the script, where it goes to a file; of a job with that of its ranks."""
    path = state.started.log if state.started is not None else None
    if path is None or not os.access(path, os.R_OK):
        return None
    return LogTail(Path(path)) if state.job is None else JobTail(LogTail(Path(path)), is_new=False)
