"""Read a run for a comparison, from its recording or from its summary."""

from __future__ import annotations

from pathlib import Path

from gradtui.protocol.foreign_text import from_json
from gradtui.protocol.json_objects import from_object
from gradtui.protocol.json_values import NotReadableError
from gradtui.protocol.run_summary import RunSummary
from gradtui.records.comparison.collector import SeriesCollector
from gradtui.records.comparison.extraction import run_figures
from gradtui.records.comparison.figures import RunFigures
from gradtui.records.comparison.resumed_run import ResumableRun
from gradtui.records.export.summary import summarise
from gradtui.records.recording import Recording, RecordingError, replayed
from gradtui.run.state.run_state import RunState
from gradtui.system.regular_file import content_of

_RULES = ("GT116", "GT216", "GT801", "GT802", "GT803", "GT804")
"""The rules about what was loaded."""
_MAX_SUMMARY = 1 << 28
"""Bytes."""


def read_run(path: Path) -> tuple[RunFigures, tuple[str, ...]]:
    """Return the figures of a run, and what is wrong with its file.

    Raises:
        RecordingError: the file cannot be read, or is neither a recording nor a summary.
    """
    try:
        recording = Recording(path)
    except RecordingError:
        summary = _summary(path)
        if summary is None:
            raise
        return run_figures(str(path), summary, None, is_complete=summary.exit_code is not None), ()
    state = RunState()
    series = SeriesCollector(state)

    def restart() -> None:
        nonlocal series
        series = SeriesCollector(state)

    replayed(recording, lambda event: series.take(event), restart, state)
    summary = summarise(state, dropped=recording.dropped)
    return run_figures(str(path), summary, series, is_complete=recording.is_complete), recording.troubles


def read_resumed(path: Path) -> tuple[ResumableRun, tuple[str, ...]]:
    """Return what a recording says of saved and loaded trainings, and what is wrong with its file. Raises RecordingError."""
    recording, state = Recording(path), RunState()
    series = SeriesCollector(state)

    def restart() -> None:
        nonlocal series
        series = SeriesCollector(state)

    replayed(recording, lambda event: series.take(event), restart, state)
    record = state.resume
    resumed = next(iter(sorted(record.resumed.values(), key=lambda each: each.step)), None)
    batches = {step: each.digest for step, each in record.batches.items()}
    findings = tuple(each.message for each in state.findings if each.rule in _RULES)
    run = ResumableRun(str(path), state.step, tuple(record.saved), resumed, batches, dict(series.loss), findings)
    return run, recording.troubles


def _summary(path: Path) -> RunSummary | None:
    """Return a summary in a file; None if there is none. Raises RecordingError if a value in it is of another type."""
    try:
        found = from_json(content_of(path, _MAX_SUMMARY))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("schema"), int) or "phases" not in found:
        return None
    try:
        return from_object(RunSummary, found)
    except NotReadableError as error:
        raise RecordingError(f"{path} is no summary that can be read: it needs {error}") from None
