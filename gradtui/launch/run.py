"""Run a script as the settings say: choose the screen or the plain reporter, and connect the parts of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from gradtui.configuration.choices import USAGE_ERROR
from gradtui.configuration.settings import Settings
from gradtui.launch.listening import RankServer, child_ranks, listening_server, serve
from gradtui.launch.missing_torch import is_torch_missing
from gradtui.launch.notified import notified_by, notify_command, notify_of_signal, say_outcome
from gradtui.launch.rank_run import RANK_DRAIN_S, connected
from gradtui.records.export.schedule_file import InterventionFiles
from gradtui.remote.live.answers import LiveRun
from gradtui.remote.serving.addresses import BadAddressError
from gradtui.remote.serving.server import RunServer
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.diagnostics.selection import rules_with_ids
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ending import closing_line, closing_lines
from gradtui.runner.ending import Outcome, finish, undisturbed
from gradtui.runner.launchers import program_of
from gradtui.runner.notify_command import NotifyCommand
from gradtui.runner.output_locks import release_files, with_own_files
from gradtui.runner.plain import DRAIN_S, PlainReporter
from gradtui.runner.script import Program, ScriptError, load
from gradtui.runner.standard_streams import note_lines
from gradtui.runner.training_run import TrainingRun
from gradtui.system.no_collection import exempt_what_exists, no_collection
from gradtui.system.own_module_search import OwnModuleSearch
from gradtui.system.printable import write_line
from gradtui.system.rank_environment import rank_of_several, with_rank
from gradtui.system.run_files import RunFiles
from gradtui.transport.in_process import EventQueue

if TYPE_CHECKING:
    from gradtui.launch.check_run import CheckReport
    from gradtui.launch.forecast_run import ForecastReport
    from gradtui.launch.try_run import TryReport
    from gradtui.protocol.run_summary import RunSummary
    from gradtui.records.export.summary_file import SummaryFile
    from gradtui.records.recording import Recorder
    from gradtui.runner.supervisor_connection import SupervisorConnection
    from gradtui.tui.charts.plot_server import PlotServer


_LAST_EVENTS_S = 1.0
"""Seconds that the end of a run waits for viewers that still receive events."""


def launch(settings: Settings) -> int:
    """Run the script as the settings say and return its exit code.

    Raises:
        SystemExit, KeyboardInterrupt: to pass on how the script ended.
    """
    settings = replace(settings, plain=is_torch_missing(settings.target) or settings.plain)
    try:
        program = load(program_of(settings.target) if settings.job else settings.target)
    except ScriptError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    if settings.record is not None:
        from gradtui.records.recording import RecordingError, check_writable

        try:
            check_writable(settings.record)
        except RecordingError as error:
            write_line(str(error))
            return USAGE_ERROR
    try:
        server = listening_server(settings)
    except (BadAddressError, OSError, UnicodeError) as error:
        where = settings.listen_on
        place = f"{where.host}:{where.port}" if where is not None else ""
        reason = (
            str(error)
            if isinstance(error, BadAddressError)
            else f"cannot listen on {place}: {getattr(error, 'strerror', None) or error}"
        )
        write_line(reason)
        return USAGE_ERROR
    command = notify_command(settings)
    without_screen = _why_no_screen(settings)
    if without_screen is not None:
        settings = with_own_files(replace(settings, log=None), write_line)
        _plain(settings, program, server, command, without_screen)
    from gradtui.runner.supervisor import supervise
    from gradtui.tui.charts.plot_server import PlotServer

    plot_server = PlotServer.start()

    def at_end() -> None:
        if plot_server is not None:
            plot_server.end()
        say_outcome(command, write_line)

    return supervise(
        lambda connection: _with_screen(settings, program, server, command, connection, plot_server),
        at_end,
        with_descendants=settings.job,
        on_killed=partial(notify_of_signal, command, settings.target.name),
    )


def _why_no_screen(settings: Settings) -> str | None:
    """Return in words why the run has no screen; None if it has one."""
    if settings.plain or settings.connect is not None:
        return "--plain shows none" if settings.connect is None else "a rank has none"
    if os.name != "posix":
        write_line("the dashboard needs a POSIX terminal (on Windows: WSL); running with --plain")
        return "it needs a POSIX terminal"
    from gradtui.runner.terminal import why_no_screen

    return why_no_screen()


def _plain(
    settings: Settings, program: Program, server: RunServer, command: NotifyCommand | None, why: str
) -> NoReturn:
    """Run without a screen; `why` says in words why there is none."""
    if settings.pause_option:
        write_line(f"{settings.pause_option} needs the screen, to let the run continue from there: {why}")
        sys.exit(USAGE_ERROR)
    files = InterventionFiles(RunFiles(settings.target.name), settings.target.masked.words)
    findings = FindingTracker(rules_with_ids(settings.rules) if settings.rules is not None else None)
    ending: CheckReport | ForecastReport | TryReport | None = None
    if settings.check is not None:
        from gradtui.launch.check_run import CheckReport

        ending = CheckReport(settings.check, settings.target, findings)
    elif settings.forecast is not None:
        from gradtui.launch.forecast_run import ForecastReport

        ending = ForecastReport(settings.forecast, settings.steps or 0)
    elif settings.tried is not None:
        from gradtui.launch.try_run import TryReport

        ending = TryReport(settings.tried)
    training = TrainingRun(settings, program)
    is_rank = settings.connect is not None
    if not is_rank and os.name == "posix":
        note_lines()
    drain_s = RANK_DRAIN_S if is_rank else DRAIN_S
    reporter = PlainReporter(
        training.events,
        findings,
        silent=ending is not None or is_rank,
        drain_s=drain_s,
        rank=rank_of_several(os.environ),
        notify=notified_by(command, settings.target.name, training.events),
    )
    reporter.state.metrics.pinned = settings.pin
    training.look = reporter.look
    reporter.start()
    _run(settings, server, training, training.execute, reporter.look, reporter, files, command, ending)


def _with_screen(
    settings: Settings,
    program: Program,
    server: RunServer,
    command: NotifyCommand | None,
    connection: SupervisorConnection,
    plot_server: PlotServer | None,
) -> NoReturn:
    with no_collection():
        from gradtui.launch.screen_run import ScreenRun

        exempt_what_exists()
    # Not before the supervisor has forked: this process would not inherit the locks.
    settings = with_own_files(settings, write_line)
    made = RunFiles(settings.target.name)
    files = InterventionFiles(made, settings.target.masked.words)
    try:
        screen = ScreenRun(
            settings,
            program,
            connection,
            plot_server,
            schedules=files,
            write_file=made.write,
            notified_by=partial(notified_by, command, settings.target.name),
        )
        holder = screen.lock_terminal()
        if holder is None:
            screen.capture_output()
    except OSError as error:
        reason = f"no log can be written ({error.strerror or error})"
        write_line(f"{reason}; running with --plain")
        _plain(settings, program, server, command, reason)
    if holder is not None:
        # The holder may be another rank of this run, so the script runs even with such an option.
        without = f", without {settings.pause_option}" if settings.pause_option else ""
        write_line(f"{holder} has the dashboard on this terminal; running with --plain{without}")
        _plain(
            replace(settings, pause_at_nan=False, pause_at_spike=False),
            program,
            server,
            command,
            "another process has it",
        )
    _run(settings, server, screen.training, screen.execute, screen.look, screen.reporter, files, command)


def _run(
    settings: Settings,
    server: RunServer,
    training: TrainingRun,
    execute: Callable[[], Outcome],
    look: Callable[[Callable[[RunState], Any]], Any],
    reporter: PlainReporter,
    files: InterventionFiles,
    command: NotifyCommand | None,
    ending: CheckReport | ForecastReport | TryReport | None = None,
) -> NoReturn:
    """Run the script by `execute`, renew the summary file meanwhile by `look`, and report at the end."""
    events, commands, search = training.events, training.commands, OwnModuleSearch()
    summary = None
    if settings.summary is not None:
        from gradtui.records.export.summary import WHILE_IT_RUNS, summarise
        from gradtui.records.export.summary_file import SummaryFile

        summary = SummaryFile(
            settings.summary, lambda: look(partial(summarise, dropped=events.dropped, without=WHILE_IT_RUNS))
        )
        summary.start()
    recorder = _recorder(settings, events)
    links = connected(settings, events, commands, reporter.say, reporter.look)
    live = None
    if settings.listen and settings.connect is None and not settings.is_short:
        live = LiveRun(look, events, None if settings.read_only else commands, settings.target.name, settings.rules)
    ranks = RankServer(server, training.hub)
    serve(server, live, ranks, is_job=settings.job)
    with child_ranks(settings, training, ranks):
        outcome = execute()
    if not outcome.forked:
        if summary is not None:
            summary.stop()
        with undisturbed():
            state = reporter.finish()
            if recorder is not None:
                recorder.finish(events.dropped)
            for link in links:
                link.finish()
            if live is not None:
                live.finish()
            server.wait_for_streams(_LAST_EVENTS_S)
            server.close()
            with search.again():
                _conclude(state, reporter, events.dropped, files, summary, ending, is_rank=settings.connect is not None)
            say_outcome(command, reporter.say)
            if training.hub is not None:
                _name_by_rank(settings, training.hub.own_rank)
            if ending is not None:
                outcome = ending.outcome(state, outcome)
        release_files()
    finish(outcome)


def _recorder(settings: Settings, events: EventQueue) -> Recorder | None:
    """Begin to record what the viewer sees, if the settings say so."""
    if settings.record is None:
        return None
    from gradtui.records.recording import Recorder, RecordingError, header_of

    try:
        recorder = Recorder(settings.record, header_of(settings), events.put, settings.record_limit)
    except RecordingError as error:
        write_line(f"{error}; nothing is recorded")
        return None
    events.follow(recorder.take)
    recorder.start()
    return recorder


def _name_by_rank(settings: Settings, rank: int | None) -> None:
    """Give the files whose names have a place for the rank their names, if this process was a rank."""
    for path in (settings.summary, settings.record):
        named = with_rank(path, rank)
        if path is not None and named is not None and named != path:
            with contextlib.suppress(OSError):
                os.replace(path, named)


def _conclude(
    state: RunState,
    reporter: PlainReporter,
    dropped: int,
    files: InterventionFiles,
    file: SummaryFile | None,
    ending: CheckReport | ForecastReport | TryReport | None,
    *,
    is_rank: bool,
) -> None:
    """Report on the run. The viewer of a job does so for its ranks."""
    account = cache(partial(_account, state, dropped, is_whole=file is not None))

    def report() -> None:
        if ending is None:
            _say_closing_lines(account(), reporter)
        else:
            ending.write(state, reporter)

    def interventions() -> None:
        written = files.closing(state)
        if written is not None:
            reporter.say(closing_line("repeat", written))

    def summary() -> None:
        if file is None:
            return
        try:
            file.conclude(account())
        except OSError as error:
            reporter.say(f"the summary could not be written to {file.path}: {error.strerror}")

    for part in (summary,) if is_rank else (report, interventions, summary):
        try:
            part()
        except Exception as error:  # noqa: BLE001 - an error of gradtui never changes the script's ending
            reporter.say(f"the {part.__name__} failed: {type(error).__name__}: {error}")


def _say_closing_lines(summary: RunSummary, reporter: PlainReporter) -> None:
    for line in closing_lines(summary.ending):
        reporter.say(line)


def _account(state: RunState, dropped: int, *, is_whole: bool) -> RunSummary:
    from gradtui.records.export.summary import FOR_ITS_END, summarise

    return summarise(state, dropped=dropped, without=() if is_whole else FOR_ITS_END)
