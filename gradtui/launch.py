"""Run a script as the settings say: choose the screen or the plain reporter, and connect the parts of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gradtui.check_run import CheckReport
from gradtui.diagnostics import FindingTracker
from gradtui.diagnostics.selection import rules_with_ids
from gradtui.export.schedule_file import InterventionFiles
from gradtui.export.summary import summarise
from gradtui.export.summary_file import SummaryFile
from gradtui.forecast_run import ForecastReport
from gradtui.live_answers import LiveRun
from gradtui.no_collection import no_collection
from gradtui.printable import write_line
from gradtui.recording import Recorder, RecordingError, check_writable, header_of
from gradtui.runner.ending import Outcome, finish, undisturbed
from gradtui.runner.plain import PlainReporter
from gradtui.runner.run_files import RunFiles
from gradtui.runner.script import Program, ScriptError, load
from gradtui.runner.training_run import TrainingRun
from gradtui.serving import RunServer, socket_directory
from gradtui.settings import USAGE_ERROR, Settings
from gradtui.state.run_state import RunState
from gradtui.text import closing_line, closing_lines
from gradtui.transport.in_process import CommandQueue, EventQueue

if TYPE_CHECKING:
    from gradtui.runner.supervisor_connection import SupervisorConnection
    from gradtui.tui.charts.plot_server import PlotServer


_LAST_EVENTS_S = 1.0
"""Seconds that the end of a run waits for viewers that still receive events."""


def launch(settings: Settings) -> int:
    """Run the script as the settings say and return its exit code.

    Raises:
        SystemExit, KeyboardInterrupt: to pass on how the script ended.
    """
    try:
        program = load(settings.target)
    except ScriptError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    try:
        if settings.record is not None:
            check_writable(settings.record)
    except RecordingError as error:
        write_line(str(error))
        return USAGE_ERROR
    if settings.plain:
        _plain(settings, program, "--plain shows none")
    if os.name != "posix":
        write_line("the dashboard needs a POSIX terminal (on Windows: WSL); running with --plain")
        _plain(settings, program, "it needs a POSIX terminal")
    from gradtui.runner.terminal import why_no_screen

    trouble = why_no_screen()
    if trouble is not None:
        _plain(settings, program, trouble)
    from gradtui.runner.supervisor import supervise
    from gradtui.tui.charts.plot_server import PlotServer

    plot_server = PlotServer.start()
    at_end = plot_server.end if plot_server is not None else lambda: None
    return supervise(lambda connection: _with_screen(settings, program, connection, plot_server), at_end)


def _plain(settings: Settings, program: Program, why: str) -> NoReturn:
    """Run without a screen; `why` says in words why there is none."""
    if settings.pause_at_nan:
        write_line(f"--pause-at-nan needs the screen, to let the run continue from there: {why}")
        sys.exit(USAGE_ERROR)
    files = InterventionFiles(RunFiles(settings.target.name), settings.target.words)
    findings = FindingTracker(rules_with_ids(settings.rules))
    ending: CheckReport | ForecastReport | None = None
    if settings.check is not None:
        ending = CheckReport(settings.check, settings.target, findings)
    elif settings.forecast is not None:
        ending = ForecastReport(settings.forecast, settings.steps or 0)
    training = TrainingRun(settings, program)
    reporter = PlainReporter(training.events, findings, silent=ending is not None)
    training.look = reporter.look
    reporter.start()
    queues = training.events, training.commands
    _run(settings, training.execute, reporter.look, reporter, queues, files, ending)


def _with_screen(
    settings: Settings, program: Program, connection: SupervisorConnection, plot_server: PlotServer | None
) -> NoReturn:
    with no_collection():
        from gradtui.screen_run import ScreenRun

    made = RunFiles(settings.target.name)
    files = InterventionFiles(made, settings.target.words)
    try:
        screen = ScreenRun(settings, program, connection, plot_server, schedules=files, write_file=made.write)
        holder = screen.lock_terminal()
        if holder is None:
            screen.capture_output()
    except OSError as error:
        reason = f"no log can be written ({error.strerror or error})"
        write_line(f"{reason}; running with --plain")
        _plain(settings, program, reason)
    if holder is not None:
        # The holder may be another rank of this run, so the script runs even with --pause-at-nan.
        without = ", without --pause-at-nan" if settings.pause_at_nan else ""
        write_line(f"{holder} has the dashboard on this terminal; running with --plain{without}")
        _plain(replace(settings, pause_at_nan=False), program, "another process has it")
    _run(settings, screen.execute, screen.look, screen.reporter, (screen.events, screen.commands), files)


def _run(
    settings: Settings,
    execute: Callable[[], Outcome],
    look: Callable[[Callable[[RunState], Any]], Any],
    reporter: PlainReporter,
    queues: tuple[EventQueue, CommandQueue],
    files: InterventionFiles,
    ending: CheckReport | ForecastReport | None = None,
) -> NoReturn:
    """Run the script by `execute`, renew the summary file meanwhile by `look`, and report at the end."""
    events, commands = queues
    summary = None
    if settings.summary is not None:
        summary = SummaryFile(settings.summary, lambda: look(partial(summarise, dropped=events.dropped)))
        summary.start()
    recorder = _recorder(settings, events)
    live = None
    if settings.listen and settings.check is None and settings.forecast is None:
        live = LiveRun(look, events, None if settings.read_only else commands, settings.target.name, settings.rules)
    server = _server(live)
    outcome = execute()
    if not outcome.forked:
        if summary is not None:
            summary.stop()
        with undisturbed():
            state = reporter.finish()
            if recorder is not None:
                recorder.finish(events.dropped)
            if server is not None and live is not None:
                live.finish()
                server.wait_for_streams(_LAST_EVENTS_S)
                server.close()
            _conclude(state, reporter, events.dropped, files, summary, ending)
            if ending is not None:
                outcome = ending.outcome(state, outcome)
    finish(outcome)


def _recorder(settings: Settings, events: EventQueue) -> Recorder | None:
    """Begin to record what the viewer sees, if the settings say so."""
    if settings.record is None:
        return None
    try:
        recorder = Recorder(settings.record, header_of(settings), events.put, settings.record_limit)
    except RecordingError as error:
        write_line(f"{error}; nothing is recorded")
        return None
    events.follow(recorder.take)
    recorder.start()
    return recorder


def _server(live: LiveRun | None) -> RunServer | None:
    """Let other processes of the user ask the run. A run without a socket is the same run."""
    if live is None:
        return None
    with contextlib.suppress(OSError):
        server = RunServer(socket_directory(), live.answers)
        server.start()
        return server
    return None


def _conclude(
    state: RunState,
    reporter: PlainReporter,
    dropped: int,
    files: InterventionFiles,
    file: SummaryFile | None,
    ending: CheckReport | ForecastReport | None,
) -> None:
    def report() -> None:
        (_say_closing_lines if ending is None else ending.write)(state, reporter)

    def interventions() -> None:
        written = files.closing(state)
        if written is not None:
            reporter.say(closing_line("repeat", written))

    def summary() -> None:
        if file is None:
            return
        try:
            file.conclude(summarise(state, dropped=dropped))
        except OSError as error:
            reporter.say(f"the summary could not be written to {file.path}: {error.strerror}")

    for part in (report, interventions, summary):
        try:
            part()
        except Exception as error:  # noqa: BLE001 - an error of gradtui never changes the script's ending
            reporter.say(f"the {part.__name__} failed: {type(error).__name__}: {error}")


def _say_closing_lines(state: RunState, reporter: PlainReporter) -> None:
    for line in closing_lines(state):
        reporter.say(line)
