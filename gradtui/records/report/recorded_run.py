"""Read a recording for a report: the state of the run when it ends, and what that state does not keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.events import Event, GroupsRead
from gradtui.records.recording import Recording, replayed
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series

MAX_RATES = 6
"""Maximum number of parameter groups whose learning rates are kept."""


@dataclass(frozen=True)
class RecordedRun:
    """A run as its recording has it."""

    state: RunState
    header: Mapping[str, Any] = field(default_factory=dict)
    """The header of the recording. Its values have any type: the file is not gradtui's own."""
    troubles: tuple[str, ...] = ()
    """What is wrong with the recording, a line each."""
    rates: Mapping[tuple[int, int], Series] = field(default_factory=dict)
    """By index of optimizer and group: its learning rates over steps."""


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
    return RecordedRun(state, recording.header, recording.troubles, rates)


def _take_rates(rates: dict[tuple[int, int], Series], event: GroupsRead) -> None:
    for optimizer, groups in enumerate(event.optimizers):
        for group, settings in enumerate(groups):
            place = optimizer, group
            if settings.learning_rate is None or (place not in rates and len(rates) >= MAX_RATES):
                continue
            rates.setdefault(place, Series()).append(event.step, settings.learning_rate)
