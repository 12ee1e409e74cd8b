"""Run a script as the settings say: choose the screen or the plain reporter, and connect the parts of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gradtui.export.intervention_files import InterventionFiles
from gradtui.export.summary import summarise
from gradtui.export.summary_file import SummaryFile
from gradtui.no_collection import no_collection
from gradtui.printable import write_line
from gradtui.runner.plain import PlainReporter
from gradtui.runner.run_files import RunFiles
from gradtui.runner.script import Program, ScriptError, finish, load
from gradtui.runner.shutting_down import undisturbed
from gradtui.runner.training_run import TrainingRun
from gradtui.settings import USAGE_ERROR, Settings
from gradtui.text import closing_lines

if TYPE_CHECKING:
    from gradtui.runner.terminal_lease import TerminalLease
    from gradtui.tui.charts.plot_server import PlotServer


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
    return supervise(lambda lease: _with_screen(settings, program, lease, plot_server), at_end)


def _plain(settings: Settings, program: Program, why: str) -> NoReturn:
    """Run without a screen; `why` says in words why there is none."""
    if settings.pause_at_nan:
        write_line(f"--pause-at-nan needs the screen, to let the run continue from there: {why}")
        sys.exit(USAGE_ERROR)
    files = InterventionFiles(RunFiles(settings.target.name), settings.target.words)
    training = TrainingRun(settings, program)
    reporter = PlainReporter(training.events)
    training.look = reporter.look
    reporter.start()
    summary = _summary_file(settings, lambda: reporter.look(partial(summarise, dropped=training.events.dropped)))
    with _renewed(summary):
        outcome = training.execute()
    if not outcome.forked:
        with undisturbed():
            _conclude(reporter, training.events.dropped, files, summary)
    finish(outcome)


def _with_screen(
    settings: Settings, program: Program, lease: TerminalLease, plot_server: PlotServer | None
) -> NoReturn:
    with no_collection():
        from gradtui.screen_run import ScreenRun

    made = RunFiles(settings.target.name)
    files = InterventionFiles(made, settings.target.words)
    try:
        screen = ScreenRun(settings, program, lease, plot_server, save_schedule=files.save, write_file=made.write)
        holder = screen.claim_terminal()
        if holder is None:
            screen.capture_output()
    except OSError as error:
        reason = f"no log can be written ({error.strerror or error})"
        write_line(f"{reason}; running with --plain")
        _plain(settings, program, reason)
    if holder is not None:
        _beside(holder, settings, program)
    summary = _summary_file(settings, lambda: screen.look(partial(summarise, dropped=screen.dropped)))
    with _renewed(summary):
        outcome = screen.execute()
    if not outcome.forked:
        with undisturbed():
            _conclude(screen.reporter, screen.dropped, files, summary)
    finish(outcome)


def _summary_file(settings: Settings, summary: Callable[[], dict[str, Any] | None]) -> SummaryFile | None:
    return SummaryFile(settings.summary, summary) if settings.summary is not None else None


def _beside(holder: str, settings: Settings, program: Program) -> NoReturn:
    """Run without a screen because `holder` has it.

    The holder may be another rank of this run, so the script runs even with --pause-at-nan.
    """
    without = ", without --pause-at-nan" if settings.pause_at_nan else ""
    write_line(f"{holder} has the dashboard on this terminal; running with --plain{without}")
    _plain(replace(settings, pause_at_nan=False), program, "another process has it")


@contextmanager
def _renewed(file: SummaryFile | None) -> Iterator[None]:
    """Renew the summary file every few seconds within this context, if there is one."""
    if file is None:
        yield
        return
    owner = os.getpid()
    file.start()
    yield
    if os.getpid() == owner:
        file.stop()


def _conclude(reporter: PlainReporter, dropped: int, files: InterventionFiles, file: SummaryFile | None) -> None:
    state = reporter.finish()

    def report() -> None:
        for line in closing_lines(state):
            reporter.say(line)

    def interventions() -> None:
        written = files.closing(state)
        if written is not None:
            reporter.say(written)

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
