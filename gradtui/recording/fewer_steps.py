"""Leave out every other step of events that have the figures of several steps, and keep those that stand out. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from gradtui.protocol.events import StepFigures, StepMemoryMeasured, StepsMeasured, StepTotals


def halved(event: StepsMeasured | StepMemoryMeasured) -> StepsMeasured | StepMemoryMeasured | None:
    """Return the event with one of every two of its steps; None if it has only one, which the caller keeps or not."""
    if isinstance(event, StepMemoryMeasured):
        if len(event.totals) < 2:
            return None
        totals = tuple(max(event.totals[at : at + 2], key=_peak) for at in range(0, len(event.totals), 2))
        return replace(event, step=totals[-1].step, totals=totals)
    if len(event.figures) < 2:
        return None
    kept: list[StepFigures] = []
    for at in range(0, len(event.figures), 2):
        pair = event.figures[at : at + 2]
        kept.append(max(pair, key=lambda each: _distance(each, kept[-1] if kept else pair[0])))
    return replace(event, step=kept[-1].step, figures=tuple(kept))


def _peak(totals: StepTotals) -> int:
    return totals.peak or 0


def _distance(figures: StepFigures, before: StepFigures) -> float:
    """Return how far the figures of a step are from those of the one before: the largest factor between them."""
    if figures.optimizer != before.optimizer:
        return 0.0
    return max(_factor(figures.loss, before.loss), _factor(figures.total, before.total))


def _factor(value: float | None, before: float | None) -> float:
    if value is None:
        return 0.0
    if not math.isfinite(value):
        return math.inf
    if not value or not before or not math.isfinite(before):
        return 1.0
    ratio = abs(value / before)
    return max(ratio, 1 / ratio)
