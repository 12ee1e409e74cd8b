"""Recordings that events alone make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.records.recording import Recorder


def record(path: Path, events: Iterable[ev.Event], **header: Any) -> Path:
    """Write a recording of these events. Its header has the script `train.py`, unless `header` has another. Return its path."""
    recorder = Recorder(path, {"script": "train.py", **header}, pytest.fail)
    recorder.start()
    recorder.take(list(events))
    recorder.finish()
    return path


def progress(step: int) -> ev.Progress:
    """Return the report of a step of two micro-steps with times of two phases."""
    times = (ev.PhaseTime(Phase.FORWARD, 0.5, 1), ev.PhaseTime(Phase.BACKWARD, 0.25, 1))
    return ev.Progress(float(step), step, 1, 2, 0, (1,), times, 0.125, 10, 20)


def norms(step: int, total: float = 1.0) -> ev.GradientsMeasured:
    """Return the gradients of a step, of which the second parameter has none."""
    return ev.GradientsMeasured(float(step), step, total, 0.5, (1.0, None))
