"""A function that `torch.multiprocessing` runs in a child process, as a rank of the run that has started it.

The child imports this module before it runs the function, so its top level imports little.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradtui.configuration.settings import Settings
from gradtui.system.own_frames import hide, strip_own_frames
from gradtui.system.printable import write_line
from gradtui.system.rank_environment import PLACE, with_rank

if TYPE_CHECKING:
    from pathlib import Path

    from gradtui.protocol.script_lines import Uncaught
    from gradtui.records.export.summary_file import SummaryFile
    from gradtui.records.recording import Recorder
    from gradtui.remote.job import LateRankLink
    from gradtui.runner.plain import PlainReporter
    from gradtui.runner.training_run import TrainingRun


class SpawnedRank:
    """Calls a function in a child process, and watches it there. The child becomes a rank when it trains.

    Args:
        function: what the script gives to `torch.multiprocessing`. It is pickled with this object.
        settings: of the parent's run.
        connect: where its viewer listens.
        ranks: how many processes are started.
        generation: how often ranks were started before.
    """

    def __init__(
        self, function: Callable[..., Any], settings: Settings, connect: str, ranks: int, generation: int
    ) -> None:
        self._function, self._ranks, self._generation = function, ranks, generation
        self._settings = replace(
            settings,
            plain=True,
            listen=False,
            listen_on=None,
            serve=None,
            connect=connect,
            pause_at_nan=False,
            pause_at_spike=False,
            log=None,
            summary=_of_ranks(settings.summary),
            record=_of_ranks(settings.record),
        )

    def __call__(self, index: int, *arguments: Any) -> Any:
        """Call the function with the index of the process, as it is called without gradtui."""
        watched = self._watched(index)
        try:
            result = self._function(index, *arguments)
        except BaseException as error:
            strip_own_frames(error)
            if watched is not None:
                watched.finish(error)
            raise
        if watched is not None:
            watched.finish(None)
        return result

    hide(__call__)

    def _watched(self, index: int) -> WatchedRank | None:
        try:
            return WatchedRank(self._settings, index, self._ranks, self._generation)
        except Exception as error:  # noqa: BLE001 - the process trains without gradtui then
            with contextlib.suppress(Exception):
                write_line(f"cannot watch process {index}: {type(error).__name__}: {error}")
            return None


class WatchedRank:
    """A child process that is watched, from now until `finish`."""

    def __init__(self, settings: Settings, index: int, ranks: int, generation: int) -> None:
        from gradtui.launch.rank_run import RANK_DRAIN_S, linked_late
        from gradtui.remote.job.link import identity_of
        from gradtui.run.diagnostics import FindingTracker
        from gradtui.run.diagnostics.selection import rules_with_ids
        from gradtui.runner.output_locks import with_own_files
        from gradtui.runner.plain import PlainReporter
        from gradtui.runner.training_run import TrainingRun

        self._owner = os.getpid()
        self._training: TrainingRun = TrainingRun(settings, None)
        events = self._training.events
        findings = FindingTracker(rules_with_ids(settings.rules) if settings.rules is not None else None)
        self._reporter: PlainReporter = PlainReporter(events, findings, silent=True, drain_s=RANK_DRAIN_S, rank=index)
        self._training.look = self._reporter.look
        who = {**identity_of({}), "rank": index, "ranks": ranks, "local_rank": index, "generation": generation}
        self._link: LateRankLink = linked_late(
            settings.connect or "", who, events, self._training.commands, self._reporter.say, self._reporter.look
        )
        record, summary = with_rank(settings.record, index), with_rank(settings.summary, index)
        settings = with_own_files(replace(settings, record=record, summary=summary), self._reporter.say)
        self._recorder = self._recorder_of(settings, settings.record)
        self._summary = self._summary_of(settings.summary)
        self._reporter.start()
        self._training.begin()

    def finish(self, error: BaseException | None) -> None:
        """Watch no more, and report how the function has ended. Never raises an `Exception`."""
        if os.getpid() != self._owner:
            return
        try:
            self._finish(error)
        except Exception as trouble:  # noqa: BLE001 - an error of gradtui never changes the ending
            with contextlib.suppress(Exception):
                write_line(f"cannot report the end of a rank: {type(trouble).__name__}: {trouble}")

    def _finish(self, error: BaseException | None) -> None:
        from gradtui.records.export.summary import summarise
        from gradtui.runner.ending import undisturbed
        from gradtui.runner.output_locks import release_files

        events = self._training.events
        if self._summary is not None:
            self._summary.stop()
        with undisturbed():
            if error is not None:
                self._training.ends(error)
            self._training.end(*_ending(error))
            state = self._reporter.finish()
            if self._recorder is not None:
                self._recorder.finish(events.dropped)
            self._link.finish()
            if self._summary is not None:
                self._summary.conclude(summarise(state, dropped=events.dropped))
        release_files()

    def _recorder_of(self, settings: Settings, path: Path | None) -> Recorder | None:
        from gradtui.records.recording import Recorder, RecordingError, header_of

        if path is None:
            return None
        events = self._training.events
        try:
            recorder = Recorder(path, header_of(settings), events.put, settings.record_limit)
        except RecordingError as error:
            self._reporter.say(f"{error}; nothing is recorded")
            return None
        events.follow(recorder.take)
        recorder.start()
        return recorder

    def _summary_of(self, path: Path | None) -> SummaryFile | None:
        from gradtui.records.export.summary import summarise
        from gradtui.records.export.summary_file import SummaryFile

        if path is None:
            return None
        events, look = self._training.events, self._reporter.look
        file = SummaryFile(path, lambda: look(lambda state: summarise(state, dropped=events.dropped)))
        file.start()
        return file


def _of_ranks(path: Path | None) -> Path | None:
    """Return the path of a file that each rank writes; None if it is that of the parent."""
    return path if path is not None and PLACE in path.name else None


def _ending(error: BaseException | None) -> tuple[int, str | None, Uncaught | None]:
    """Return the exit code of the child, and the report on its error, as `torch.multiprocessing` makes them."""
    import traceback

    from gradtui.runner.uncaught import uncaught

    if error is None or isinstance(error, KeyboardInterrupt):
        return 0, None, None
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return code, None, uncaught(error) if code else None
    report = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return 1, report, uncaught(error)
