"""Connects the user's command of `--notify` with the viewer of a run."""

from __future__ import annotations

import os
from collections.abc import Callable

from gradtui.configuration.settings import Settings
from gradtui.protocol.events import ProbeFailed
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ending import closing_line
from gradtui.run.text.notices import Notice, notice_facts
from gradtui.runner.ending import signal_name
from gradtui.runner.notify_command import NotifyCommand
from gradtui.system.printable import write_line
from gradtui.transport.in_process import EventQueue


def notify_command(settings: Settings) -> NotifyCommand | None:
    """Start the process for the user's command. Before there are threads, and before torch is imported."""
    is_wanted = settings.notify and settings.connect is None and not settings.is_short
    if not is_wanted or os.name != "posix":
        return None
    command = NotifyCommand.start(settings.notify)
    if command is None:
        write_line(f"{settings.notify[0]} will not be run: no process can be started for it")
    return command


def notified_by(
    command: NotifyCommand | None, name: str, events: EventQueue
) -> Callable[[RunState, Notice], None] | None:
    """Return what asks for the command in the run of the script `name`. Its failures are events."""
    if command is None:
        return None

    def notify(state: RunState, notice: Notice) -> None:
        step = state.step
        command.run(
            notice_facts(state, notice, name),
            lambda trouble: events.put(ProbeFailed(state.seconds, step, "--notify", trouble, False)),
        )

    return notify


def say_outcome(command: NotifyCommand | None, say: Callable[[str], None]) -> None:
    """Say in one closing line that the command has failed, or that this is not known yet. Waits a little for it."""
    trouble = command.outcome(_LAST_S) if command is not None else ""
    if trouble:
        say(closing_line("notify", trouble))


_LAST_S = 2.0
"""Seconds that the end of a run waits for the command."""


def notify_of_signal(command: NotifyCommand | None, name: str, number: int) -> None:
    """Ask for the command because a signal has ended the training process of the script `name`, which can say nothing."""
    if command is not None:
        dead = Notice("failed", None, f"killed by {signal_name(number)}")
        command.run(notice_facts(None, dead, name, 128 + number))
