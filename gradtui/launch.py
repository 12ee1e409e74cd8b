"""From settings to an exit code: chooses the screen or the plain report, and puts the parts of a run together."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gradtui.export import summary
from gradtui.runner.plain import PlainReporter, closing_lines
from gradtui.runner.script import Program, ScriptError, finish, load
from gradtui.runner.training_run import TrainingRun
from gradtui.settings import Settings
from gradtui.state.run_state import RunState

if TYPE_CHECKING:
    from gradtui.runner.terminal_lease import TerminalLease


def launch(settings: Settings) -> int:
    """Run the script as the settings say and return its exit code.

    Raises:
        SystemExit, KeyboardInterrupt: where the script's own ending has to be passed on.
    """
    try:
        program = load(settings.target)
    except ScriptError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    if settings.plain:
        return _plain(settings, program)
    if os.name != "posix":
        sys.stderr.write("gradtui: the dashboard needs a POSIX terminal (on Windows: WSL); running with --plain\n")
        return _plain(settings, program)
    from gradtui.runner.terminal import why_no_screen

    if why_no_screen() is not None:
        return _plain(settings, program)
    from gradtui.runner.supervisor import supervise

    return supervise(lambda lease: _with_screen(settings, program, lease))


def _plain(settings: Settings, program: Program) -> int:
    training = TrainingRun(settings, program)
    reporter = PlainReporter(training.events)
    reporter.start()
    outcome = training.execute()
    if not outcome.forked:
        _conclude(settings, reporter, training.events.dropped)
    finish(outcome)


def _conclude(settings: Settings, reporter: PlainReporter, dropped: int) -> None:
    state = reporter.finish()
    for line in closing_lines(state):
        reporter.say(line)
    _write_summary(settings, state, dropped, reporter)


def _write_summary(settings: Settings, state: RunState, dropped: int, reporter: PlainReporter) -> None:
    if settings.summary is None:
        return
    try:
        summary.write(summary.summarise(state, dropped=dropped), settings.summary)
    except OSError as error:
        reporter.say(f"the summary could not be written to {settings.summary}: {error.strerror}")


def _with_screen(settings: Settings, program: Program, lease: TerminalLease) -> int:
    from gradtui.screen_run import ScreenRun

    screen = ScreenRun(settings, program, lease)
    outcome = screen.execute()
    if not outcome.forked:
        _conclude(settings, screen.reporter, screen.dropped)
    finish(outcome)
