"""What a live run answers to other processes, from the state that its viewer keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from gradtui.export.summary import finding_entry, summarise
from gradtui.serving.server import Answer
from gradtui.state.findings import Status, by_gravity
from gradtui.state.run_state import RunState

Look = Callable[[Callable[[RunState], Any]], Any]


def answers(look: Look, script: str, dropped: Callable[[], int]) -> Mapping[str, Answer]:
    """Return the answers of a run.

    Args:
        look: applies a function to the state of the run, on the thread that owns it.
        script: the name of the script.
        dropped: returns how many events were dropped.
    """
    since = datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="seconds")
    identity = {"pid": os.getpid(), "script": script, "since": since}
    return {
        "status": lambda _: look(lambda state: {**identity, **_status(state)}),
        "state": lambda _: look(lambda state: summarise(state, dropped=dropped())),
        "findings": lambda _: look(lambda state: [finding_entry(each) for each in by_gravity(state.findings)]),
    }


def _status(state: RunState) -> dict[str, Any]:
    return {
        "step": state.step,
        "phase": state.phase.value,
        "paused": state.paused,
        "ended": state.ended is not None,
        "steps_per_second": state.steps_per_second,
        "loss": finite(state.loss.last),
        "gradient_norm": finite(state.gradient_norm.last),
        "findings": sum(each.is_open and each.status is Status.CONFIRMED for each in state.findings),
    }


def finite(value: float | None) -> float | str | None:
    """Return a number, or the name of one that is not finite."""
    return value if value is None or value - value == 0 else "NaN" if value != value else f"{value}"
