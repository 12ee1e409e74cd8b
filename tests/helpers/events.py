"""Events of which a test needs the step, and little else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradtui.protocol import events as ev


def progress(step: int, steps: int = 1, **changes: Any) -> ev.Progress:
    """Return the report of `steps` steps up to `step`, at as many seconds, with the changes."""
    return replace(ev.Progress(float(step), step, steps, steps, 0, (steps,), (), 0.0, 1, 1), **changes)


def of_rank(rank: int, event: ev.Event) -> ev.RankEvent:
    """Return an event as the viewer of a job gets it from a rank."""
    return ev.RankEvent(event.at, event.step, rank, 0, event)
