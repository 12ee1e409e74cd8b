"""Recordings that events alone make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gradtui.protocol.events import Event
from gradtui.records.recording import Recorder


def record(path: Path, events: Iterable[Event], **header: Any) -> Path:
    """Write a recording of these events. Its header has the script `train.py`, unless `header` has another. Return its path."""
    recorder = Recorder(path, {"script": "train.py", **header}, pytest.fail)
    recorder.start()
    recorder.take(list(events))
    recorder.finish()
    return path
