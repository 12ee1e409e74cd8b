"""One complete run on the main thread: start the probe, run the script, stop the probe, with the queues that connect it to a
viewer.

gradtui imports torch only when the script has imported it, and the probe when the script first uses what the probe watches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import field, replace
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from gradtui.configuration.settings import Settings
from gradtui.dataclass import dataclass
from gradtui.protocol.commands import PauseAtBadStep, SetBreakpoint
from gradtui.protocol.events import (
    WATCHING,
    Event,
    ProbeFailed,
    RanksFailed,
    RunEnded,
    RunStarted,
    ScheduleNoted,
    TorchImported,
)
from gradtui.protocol.script_lines import Uncaught
from gradtui.remote.job import JobCommands, OwnCommands, RankHub
from gradtui.runner.ending import Outcome, undisturbed, wait_for_threads
from gradtui.runner.guarded_start import guarded
from gradtui.runner.launchers import failures_in, ranks_under_gradtui
from gradtui.runner.script import Program, run
from gradtui.runner.torch_import_hook import TorchImportHook, when_torch_is_imported
from gradtui.system.own_module_search import OwnModuleSearch
from gradtui.system.printable import write_line
from gradtui.system.run_files import RunFiles, present_directory
from gradtui.transport.in_process import CommandQueue, EventQueue

if TYPE_CHECKING:
    from gradtui.probe.first_use import FirstUse
    from gradtui.probe.samplers.readings import Readings
    from gradtui.probe.session import Session
    from gradtui.run.state.run_state import RunState


_RANKS_S = 3.0
"""Seconds that the end of the run waits for the last events of the ranks."""
_CPU_FIELDS = ("user", "system", "children_user", "children_system")
"""The CPU times of a process: its own, and those of the children that it has waited for."""


@dataclass
class TrainingRun:
    """A script, and the two queues between it and its viewer. Without a `program`, what runs between `begin` and `end`."""

    settings: Settings
    program: Program | None
    log: str | None = None
    events: EventQueue = field(default_factory=EventQueue)
    commands: CommandQueue = field(default_factory=CommandQueue)
    look: Callable[[Callable[[RunState], Any]], Any] = lambda _at: None
    """Reads the viewer's state, as in `probe.session.Viewer`."""
    _began: int = field(default_factory=perf_counter_ns)
    _watched: Session | None = None
    hub: RankHub | None = None
    """The connections to the ranks, if the script is a launcher of ranks, or has child processes that may become ranks."""
    has_child_ranks: bool = False
    """The script has started child processes that may become ranks."""
    _arrival: TorchImportHook | None = None
    _search: OwnModuleSearch = field(default_factory=OwnModuleSearch)
    _directory: str = field(default_factory=present_directory)
    """The directory in which the run begins."""
    _imported: int = 0
    """When the script had imported torch, in nanoseconds of `perf_counter_ns`."""
    _readings: Readings | None = None
    _first_use: FirstUse | None = None
    """Begins the watch when the script uses torch to train, or to load and save; None until it has imported torch."""
    _is_replaced: bool = False
    """Child processes are shown in place of this one, which is no rank."""
    _is_included: bool = False
    """This process is a rank, beside child processes."""

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.connect is not None or (settings.is_short and not settings.job):
            return
        self.hub = RankHub(self.events.put, self.seconds, self._ranks_begin)
        self._to_all = JobCommands(self.hub.send, self.hub.release)
        self.commands = self._to_all if settings.job else OwnCommands()

    def include_own_process(self) -> None:
        """This process is a rank itself, beside the child processes that it starts now. Training thread."""
        if self.hub is None or not isinstance(self.commands, OwnCommands) or self._is_included:
            return
        self._is_included = True
        self.hub.include_own(self.commands.put)
        self.events.follow(self.hub.take_own)
        if self._watched is not None:
            self._watched.probe.dispatcher.replay.ranks_agree = True

    def _ranks_begin(self) -> None:
        """The first rank has joined."""
        if not isinstance(self.commands, OwnCommands):
            return
        self.commands.share(self._to_all)
        if not self._is_included:
            self._is_replaced = True
            while (command := self.commands.take()) is not None:
                self._to_all.submit(lambda _, made=command: made, command.origin, command.id)  # type: ignore[misc]

    def _emit(self, event: Event) -> None:
        """Take an event of the probe of this process."""
        if not self._is_replaced:
            self.events.put(event)

    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return (perf_counter_ns() - self._began) / 1e9

    def execute(self, at_end: Callable[[], None] = lambda: None) -> Outcome:
        """Run the script to its end. The probe watches its training. The outcome has what the script raised.

        `at_end` is called when the script has ended, before that is reported.
        """
        assert self.program is not None
        self.begin()
        owner = os.getpid()
        started = ranks_under_gradtui(self.settings.rank_options) if self.settings.job else contextlib.nullcontext()
        try:
            with started:
                outcome = run(self.program, self.ends)
        except KeyboardInterrupt:
            # A second Ctrl+C while the first was being reported.
            outcome = Outcome(128 + signal.SIGINT, signal=signal.SIGINT, forked=os.getpid() != owner)
        if outcome.forked:
            return outcome
        wait_for_threads()
        with undisturbed():
            step = self._leave()
            if self.hub is not None and (not self._is_included or not outcome.exit_code):
                # The ranks that this process is one of learn of its failure by its end.
                self.hub.wait_for_ranks(_RANKS_S)
        at_end()
        self._say_end(step, outcome.exit_code, outcome.error, outcome.uncaught)
        return outcome

    def begin(self) -> None:
        """Begin to watch this process, from its first use of torch on."""
        self._began = perf_counter_ns()
        settings = self.settings
        identity = (settings.target.name, settings.target.arguments, os.getpid())
        limits = settings.steps, settings.budget
        self.events.put(RunStarted(0.0, 0, *identity, "", "", "", self.log, *limits))
        # A launcher trains nothing: its ranks are watched.
        if not self.settings.job:
            self._arrival = when_torch_is_imported(self._await_use)
            if self._arrival is None and self._first_use is not None:
                # There may be models already.
                self._first_use.begin()

    def end(self, exit_code: int, error: str | None, uncaught: Uncaught | None = None) -> None:
        """Watch no more: what ran has ended."""
        self._say_end(self._leave(), exit_code, error, uncaught)

    def _say_end(self, step: int, exit_code: int, error: str | None, uncaught: Uncaught | None) -> None:
        ended = RunEnded(
            self.seconds(),
            step,
            exit_code,
            self._without_secrets(error) if error is not None else None,
            uncaught=uncaught.in_words(self._without_secrets) if uncaught is not None else None,
        )
        counter = self._watched.probe.counter if self._watched is not None else None
        has_trained = counter is not None and counter.steps + counter.micro_steps > 0
        self.events.put(ended if has_trained else replace(ended, child_cpu_seconds=child_cpu_seconds()))

    def _without_secrets(self, text: str) -> str:
        if not self.settings.target.arguments:
            return text
        # `RunStarted` has imported it.
        from gradtui.protocol.secrets import without_secrets

        return without_secrets(text, self.settings.target.arguments)

    def waits_for_user(self, on: bool) -> None:
        """The calling thread waits for what the user types, until it is called with False."""
        if self._watched is not None and threading.current_thread() is threading.main_thread():
            self._watched.probe.parts.waits_for_user(on)

    def ends(self, error: BaseException) -> None:
        """Let the probe examine an exception that ends the run."""
        if self.settings.job and (failures := failures_in(error)):
            failures = tuple(replace(each, message=self._without_secrets(each.message)) for each in failures)
            self.events.put(RanksFailed(self.seconds(), 0, failures))
        if self._watched is None and self._first_use is not None and isinstance(error, (MemoryError, RuntimeError)):
            # torch may have run out of memory before there was a model: the probe says what held it.
            self._first_use.begin()
        if self._watched is not None:
            self._watched.probe.hooks.passes(error, ends=True)

    def _leave(self) -> int:
        if self._arrival is not None:
            self._arrival.forget()
        if self._first_use is not None:
            self._first_use.end()
        if self._watched is not None:
            self._watched.stop()
            return self._watched.probe.counter.steps
        if self._readings is not None:
            self._readings.stop()
        if count := len(self.settings.schedule):
            text = (
                f"{count} of {count} entries never reached: torch was not imported or not used, or could not be watched"
            )
            self.events.put(ScheduleNoted(self.seconds(), 0, text, False))
        return 0

    def _await_use(self) -> None:
        """Begin with what needs no probe. The script has imported torch."""
        guarded(self._begin_readings, self._failed)

    def _watch(self) -> None:
        """Begin to watch: the script is about to use what the probe watches."""
        assert self._readings is not None
        since = self._readings.allocator.read()
        try:
            with self._search.on_this_thread():
                guarded(self._attach, self._failed)
        finally:
            # gradtui's modules are not the script's memory.
            self._readings.allocator.leave_out(since)

    def _failed(self, trouble: str) -> None:
        write_line(f"cannot watch this run: {trouble}")
        self.events.put(ProbeFailed(0.0, 0, WATCHING, trouble, True))

    def _begin_readings(self) -> None:
        import torch

        from gradtui.probe.first_use import FirstUse
        from gradtui.probe.samplers.readings import Readings

        self._imported = perf_counter_ns()
        self._readings = readings = Readings(self.seconds, self._emit, self._sampler_failed)
        self.events.put(TorchImported(self.seconds(), 0, str(torch.__version__), "cpu", readings.allocator.name))
        self._first_use = FirstUse(self._watch)
        self._first_use.watch_for()
        readings.start()

    def _sampler_failed(self, sampler: str, error: str) -> None:
        step = self._watched.probe.counter.steps if self._watched is not None else 0
        self.events.put(ProbeFailed(self.seconds(), step, sampler, error, True))

    def _attach(self) -> None:
        from gradtui.probe.memory import protect_this_process
        from gradtui.probe.runtime import ProbeOptions
        from gradtui.probe.session import Session, Viewer
        from gradtui.run.diagnostics import own_rules

        # The viewer runs them: it is to import nothing while the script trains.
        own_rules()
        protect_this_process()
        settings = self.settings
        options = ProbeOptions(
            self.commands,
            budget=settings.budget,
            stop_after=settings.steps,
            schedule=settings.schedule,
            awaited=settings.awaited,
            awaits_times=settings.forecast is not None and settings.forecast.awaits_times,
            ranks_agree=settings.connect is not None or self._is_included,
            since=self._imported,
            return_at_nan=settings.return_at_nan,
            return_at_spike=settings.return_at_spike,
            write_file=RunFiles(settings.target.name).write,
            directory=self._directory,
            keep=settings.keep,
        )
        session = Session(self._emit, options, self._readings)
        if settings.pause_at_nan:
            self.commands.submit(PauseAtBadStep)
        if settings.pause_at_spike:
            self.commands.submit(lambda number: SetBreakpoint(number, "spike"))
        session.probe.clock.count_from(self._began)
        assert self._first_use is not None
        with self._first_use.wrapping():
            session.start(Viewer(self.look, lambda: self.events.dropped))
        self._watched = session


def child_cpu_seconds() -> float:
    """Return the CPU seconds of all child processes of this process so far: those that it has waited for, and those alive.

    Training may have run there, out of gradtui's view. POSIX only.

    Helper processes of gradtui are children of another process. A child that has ended and that the process has not waited for
    counts as long as it is a zombie.
    """
    waited_for = os.times()
    seconds = waited_for.children_user + waited_for.children_system
    if not _may_have_children():
        return seconds
    with contextlib.suppress(Exception):  # psutil raises its own errors, and those of what it reads
        import psutil

        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += sum(getattr(times, field, 0.0) for field in _CPU_FIELDS)
    return seconds


def _may_have_children() -> bool:
    """Return whether Linux lists a child process, or does not say so: psutil takes a hundredth of a second to import."""
    try:
        threads = os.listdir("/proc/self/task")
        return any(Path("/proc/self/task", thread, "children").read_bytes() for thread in threads)
    except OSError:
        return True
