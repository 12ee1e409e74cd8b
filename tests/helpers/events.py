"""Events of which a test needs the step, and little else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats


def progress(step: int, steps: int = 1, **changes: Any) -> ev.Progress:
    """Return the report of `steps` steps up to `step`, at as many seconds, with the changes."""
    return replace(ev.Progress(float(step), step, steps, steps, 0, (steps,), (), 0.0, 1, 1), **changes)


def of_rank(rank: int, event: ev.Event) -> ev.RankEvent:
    """Return an event as the viewer of a job gets it from a rank."""
    return ev.RankEvent(event.at, event.step, rank, 0, event)


def rank_joined(rank: int, ranks: int = 2, **changes: Any) -> ev.RankJoined:
    """Return the event of a rank of `ranks` on one host that joins after a second, with the changes."""
    return replace(ev.RankJoined(1.0, 0, rank, ranks, rank, "host", 100 + rank, 0), **changes)


def gradient_stats(
    parameter: int = 0, ratio: float | None = None, *, weight: float = 1.0, std: float = 1.0
) -> GradientStats:
    """Return the statistics of a finite gradient without zeros: the update ratio, the norm of the weights, the deviation."""
    return GradientStats(parameter, 1.0, 0.0, std, 0.0, 0, weight, ratio, True)
