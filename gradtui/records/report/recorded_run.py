"""Read a recording for a report: the summary of its run, and the curves that no summary has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.events import Event, GroupsRead
from gradtui.protocol.run_summary import RunSummary
from gradtui.records.export.summary import summarise
from gradtui.records.recording import Recording, replayed
from gradtui.records.report.run_series import Rates, RunSeries, run_series
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series

MAX_RATES = 6
"""Maximum number of parameter groups whose learning rates are kept."""


@dataclass(frozen=True)
class RecordedRun:
    """A run as its recording has it."""

    summary: RunSummary
    series: RunSeries
    header: Mapping[str, Any]
    """The header of the recording. Its values have any type: the file is not gradtui's own."""
    troubles: Sequence[str]
    """What is wrong with the recording, a line each."""


def recorded_run(path: Path) -> RecordedRun:
    """Read a recording.

    Raises:
        RecordingError: the file is no recording, or cannot be read.
    """
    recording = Recording(path)
    rates: dict[tuple[int, int], Series] = {}

    def take(event: Event) -> None:
        if isinstance(event, GroupsRead):
            _take_rates(rates, event)

    state = replayed(recording, take, rates.clear)
    return run_of(state, rates, recording.header, recording.troubles, recording.dropped)


def run_of(
    state: RunState,
    rates: Rates | None = None,
    header: Mapping[str, Any] | None = None,
    troubles: Sequence[str] = (),
    dropped: int = 0,
) -> RecordedRun:
    """Return a run that has come to this state; `dropped` counts the events that the recording lacks."""
    return RecordedRun(summarise(state, dropped=dropped), run_series(state, rates or {}), header or {}, troubles)


def _take_rates(rates: dict[tuple[int, int], Series], event: GroupsRead) -> None:
    for optimizer, groups in enumerate(event.optimizers):
        for group, settings in enumerate(groups):
            place = optimizer, group
            if settings.learning_rate is None or (place not in rates and len(rates) >= MAX_RATES):
                continue
            rates.setdefault(place, Series()).append(event.step, settings.learning_rate)
