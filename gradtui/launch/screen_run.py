"""A run with a screen: the terminal, the output capture, the app's thread, and the script on the main thread."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from gradtui.configuration.remembered_theme import remember_theme
from gradtui.configuration.settings import Settings
from gradtui.protocol.events import ProbeFailed
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.diagnostics.selection import rules_with_ids
from gradtui.run.state.ranks.rank_failure import first_failure
from gradtui.run.state.run_state import RunState
from gradtui.run.text.notices import Notice
from gradtui.runner.descendants import Descendants
from gradtui.runner.ending import Outcome, run_exit_callbacks
from gradtui.runner.output_capture import INPUT_REFUSED, OutputCapture
from gradtui.runner.output_repeater import OutputRepeater
from gradtui.runner.plain import PlainReporter
from gradtui.runner.script import Program
from gradtui.runner.script_input import ScriptInput
from gradtui.runner.shown_output import ShownOutput
from gradtui.runner.supervisor_connection import SupervisorConnection
from gradtui.runner.terminal import ControllingTerminal
from gradtui.runner.terminal_loan import TerminalLoan
from gradtui.runner.terminal_lock import TerminalLock
from gradtui.runner.training_run import TrainingRun
from gradtui.system.atomic_file import WriteFile
from gradtui.system.no_collection import no_collection
from gradtui.system.printable import printable, write_line
from gradtui.system.rank_environment import OUTPUT
from gradtui.system.run_files import RunFiles
from gradtui.transport.in_process import EventQueue
from gradtui.transport.live_displays import LiveDisplays
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail, directory_of, make_directory
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.screens.panel_layout import PanelLayout
from gradtui.tui.terminal import UiThread, give_terminal, in_foreground, interrupt_script, rich_displays_in

if TYPE_CHECKING:
    from gradtui.planner import ForecastThread
    from gradtui.protocol.forecasts import ForecastAsked, ForecastMade
    from gradtui.tui.app.app import GradtuiApp
    from gradtui.tui.charts.plot_server import PlotServer
    from gradtui.tui.screens.action_context import Schedules

T = TypeVar("T")

_READY_S = 10.0
"""The script starts after the first paint, or after this many seconds if the screen does not start."""

_ANSWER_S = 5.0
"""Seconds that the app's thread has to answer a request."""

_TAIL_LINES = 15
"""Lines of the script's output repeated on the terminal once the screen is closed."""


class _LatePlanner:
    """The planner, which is made with the first question: it imports torch, which the script has imported by then."""

    def __init__(self, emit: Callable[[ForecastMade], None]) -> None:
        self._emit = emit
        self._made: ForecastThread | None = None

    def ask(self, asked: ForecastAsked) -> None:
        self._thread.ask(asked)

    def ask_all(self, asked: Sequence[ForecastAsked]) -> None:
        self._thread.ask_all(asked)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    @property
    def _thread(self) -> ForecastThread:
        if self._made is None:
            from gradtui.planner import ForecastThread

            self._made = ForecastThread(self._emit)
        return self._made


class ScreenRun:
    """Runs a script under the dashboard. If the user closes the screen or the app crashes, training continues without it."""

    def __init__(
        self,
        settings: Settings,
        program: Program,
        connection: SupervisorConnection,
        plot_server: PlotServer | None = None,
        *,
        schedules: Schedules | None = None,
        write_file: WriteFile | None = None,
        notified_by: Callable[[EventQueue], Callable[[RunState, Notice], None] | None] = lambda _events: None,
    ) -> None:
        self._schedules, self._write_file = schedules, write_file
        log = settings.log or RunFiles(settings.target.name).new_log()
        self._connection = connection
        self.training = TrainingRun(settings, program, str(log))
        self.events = self.training.events
        self._notify = notified_by(self.events)
        self._settings = settings
        terminal = shutil.get_terminal_size()
        columns = PanelLayout(terminal.columns, terminal.lines).output_columns
        self._capture = OutputCapture(
            log,
            columns=columns,
            announce=lambda path: connection.report(log=path),
            on_trouble=self._note_lost_output,
        )
        self._terminal = ControllingTerminal(connection)
        self._lock = TerminalLock(0)
        self._shown = ShownOutput(log, self._terminal)
        self._loan = TerminalLoan(self._shown, self._close_screen, lambda on: connection.report(is_lent=on))
        self._terminal.is_lent = self._loan.goes_on
        self._input = ScriptInput(self._capture, self._loan, self.training.waits_for_user)
        self._thread = UiThread(self._make_app, self._terminal, on_end=self._screen_ended)
        self._plotter = Pictures(plot_server)
        self._findings = FindingTracker(rules_with_ids(settings.rules) if settings.rules is not None else None)
        self.reporter = PlainReporter(self.events, self._findings, notify=self._notify)
        self.reporter.state.metrics.pinned = settings.pin
        self.training.look = self.look
        self._displays = LiveDisplays()
        self._until_closed = contextlib.ExitStack()
        self._job_tail: JobTail | None = None
        """The output of the ranks, if the script is a launcher and the screen is the viewer of its job."""
        self._repeater: OutputRepeater | None = None
        self._planner = _LatePlanner(self.events.put)

    def look(self, at: Callable[[RunState], T]) -> T | None:
        """Apply `at` to the state with all events received so far, on the thread that owns it now, and return the result.

        Returns None if that thread does not answer in time. May be called from any other thread.
        """
        if self._thread.is_alive:
            return self._thread.ask(lambda app: cast("GradtuiApp", app).look(at), _ANSWER_S)
        return self.reporter.look(at)

    def lock_terminal(self) -> str | None:
        """Lock the terminal for this run's screen, or return in words who has it. Call this before `capture_output`."""
        return self._lock.acquire(self._settings.target.name)

    def capture_output(self) -> None:
        """Redirect the output to the log. Call this before `execute`.

        Raises:
            OSError: the log cannot be opened. Nothing has changed then.
        """
        if not in_foreground(self._terminal.descriptor):
            # A terminal may stop background jobs that write to it; the script itself has not written anything yet.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
            write_line(
                f"in the background: fg shows the dashboard; the output of the script goes to {self._capture.log}"
            )
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._capture.start()
        self._shown.size = self._capture.start_offset
        self._input.start()
        if self._settings.job and make_directory(str(self._capture.log)):
            self._job_tail = JobTail(self._new_tail())
            self._capture.place = (
                f"{self._capture.log}, and that of each rank in {directory_of(str(self._capture.log))}"
            )
            # The launcher passes its environment on to the ranks.
            os.environ[OUTPUT] = str(self._capture.log.absolute())

    def execute(self) -> Outcome:
        """Run the script, then keep the screen open until the user closes it."""
        # A launcher ends its ranks when the terminal is gone, and they would inherit that the signal is ignored.
        if not self._settings.job:
            self._terminal.sighup.ignore()
        with no_collection():
            self._thread.start()
            self._thread.wait_ready(_READY_S)
        # The script's exit callbacks run now: they must not wait until the user closes the screen.
        outcome = self.training.execute(at_end=run_exit_callbacks)
        if outcome.forked:
            return outcome
        try:
            if not self._loan.script_ended():
                # A daemon thread reads on: only the end of the process ends that.
                self._thread.stop()
            self._thread.join()
        except KeyboardInterrupt:
            self._thread.stop()
        if not self._terminal.is_gone:
            self._stop_capture()
        if self._repeater is not None:
            self._repeater.finish()
        self._report_troubles(outcome)
        return outcome

    def _stop_capture(self) -> None:
        """Let the output go to the terminal again, and show there where the script is."""
        self._input.stop()
        tail = self._job_tail
        if tail is None:
            self._capture.stop(tail=_TAIL_LINES, shown=self._shown.size)
            return
        tail.poll()
        last = [
            *self._first_traceback(),
            *(f"{line.label}{printable(line.text)}" for line in tail.last_lines(_TAIL_LINES)),
        ]
        tail.skip()
        self._capture.stop(tail=last)

    def _first_traceback(self) -> list[str]:
        """Return the traceback of the rank that has failed first."""
        state = self.reporter.state
        failure = None
        if state.job is not None:
            failure = first_failure(state.job, is_over=state.ended is not None)
        if failure is None or not failure.traceback:
            return []
        lines = [printable(line) for line in failure.traceback[-_TAIL_LINES:]]
        return [f"gradtui: rank {failure.rank} failed first:", *lines, "gradtui: last lines of the output:"]

    def _new_tail(self) -> LogTail:
        return LogTail(self._capture.log, offset=self._capture.start_offset, displays=self._displays)

    def _make_app(self) -> GradtuiApp:
        from gradtui.tui.app.app import GradtuiApp

        self._until_closed.enter_context(rich_displays_in(self._displays))
        log = self._job_tail or self._new_tail()
        app = GradtuiApp(
            self.events,
            self.training.commands,
            log=log,
            refresh_hz=self._settings.refresh,
            theme=self._settings.theme,
            columns=self._settings.columns,
            order=self._settings.order,
            keys=self._settings.keys,
            remember_theme=remember_theme,
            interrupt=self._interrupt,
            kill=self._connection.kill,
            pictures=self._plotter,
            write_file=self._write_file,
            schedules=self._schedules,
            findings=self._findings,
            planner=self._planner,
            alert=self._settings.alert,
            notify=self._notify,
        )
        app.run_state.metrics.pinned = self._settings.pin
        return app

    def _close_screen(self) -> bool:
        """Close the screen until the terminal is no longer lent. Returns False if it does not answer."""
        return bool(self._thread.ask(give_terminal, _ANSWER_S))

    def _interrupt(self) -> None:
        """Interrupt the script, and the ranks that it has started, which a terminal would interrupt too."""
        if self._settings.job or self.training.has_child_ranks:
            Descendants(os.getpid()).signal_group(signal.SIGINT)
        interrupt_script()

    def _screen_ended(self, thread: UiThread) -> None:
        """Hand over to the plain reporter. Runs on the app's thread, with the terminal restored."""
        self._until_closed.close()
        self._lock.release()
        self._hand_over(getattr(thread.app, "run_state", None))
        self._plotter.close()
        self._planner.close()

    def _hand_over(self, state: RunState | None) -> None:
        """Let the plain reporter continue the run with the screen's state."""
        if state is not None:
            self.reporter.state = state
        self.training.commands.close()
        gone = self._terminal.is_gone
        if gone:
            # Writing to a terminal that is gone would fail: the script's output and gradtui's lines go to the log.
            self.reporter.speak_into(self._capture.log)
        else:
            self._terminal.sighup.restore()
        if self.reporter.state.ended is not None:
            return
        if gone:
            self.reporter.say(
                f"the terminal is gone; training continues as process {os.getpid()}, and its output continues here"
            )
        else:
            self._stop_capture()
            if self._job_tail is not None:
                self._repeater = OutputRepeater(self._job_tail)
                self._repeater.start()
        self.reporter.start()

    def _note_lost_output(self, reason: str) -> None:
        """Report that the log lost output. Runs on any thread that prints."""
        trouble = f"what the script prints is not kept: {reason}"
        self.events.put(ProbeFailed(0.0, self.reporter.state.step, "log", trouble, False))

    def _report_troubles(self, outcome: Outcome) -> None:
        if self._capture.lost_bytes:
            # The lost output most likely includes the traceback.
            sys.stderr.write(outcome.error or "")
            lost, log = self._capture.lost_bytes, self._capture.log
            write_line(f"{lost:,} bytes of the output are not in {log}: {self._capture.trouble}")
        if self._capture.asked_for_input:
            sys.stderr.write(INPUT_REFUSED)
        if self._terminal.was_lost:
            write_line("the script closed the dashboard's files, and the dashboard with them")
        elif self._thread.crash is not None:
            write_line("the dashboard failed; training was not touched")
            sys.stderr.write("".join(f"{printable(line)}\n" for line in str(self._thread.crash).splitlines()))
