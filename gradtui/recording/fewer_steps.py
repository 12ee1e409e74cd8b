"""Leave out every other step of events that have the figures of several steps, and keep those that stand out. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from gradtui.protocol.events import StepFigures, StepLosses, StepMemoryMeasured, StepsMeasured, StepTotals


def halved(event: StepsMeasured | StepMemoryMeasured) -> StepsMeasured | StepMemoryMeasured | None:
    """Return the event with one of every two of its steps; None if it has only one, which the caller keeps or not."""
    if isinstance(event, StepMemoryMeasured):
        if len(event.totals) < 2:
            return None
        totals = tuple(max(event.totals[at : at + 2], key=_peak) for at in range(0, len(event.totals), 2))
        return replace(event, step=totals[-1].step, totals=totals)
    losses = tuple(map(_halved_losses, event.losses))
    of_each: dict[int, list[StepFigures]] = {}
    for figures in event.figures:
        of_each.setdefault(figures.optimizer, []).append(figures)
    kept = [figures for own in of_each.values() for figures in _halved_figures(own)]
    if len(kept) == len(event.figures) and losses == event.losses:
        return None
    return replace(event, figures=tuple(sorted(kept, key=lambda each: each.step)), losses=losses)


def _halved_figures(figures: list[StepFigures]) -> list[StepFigures]:
    kept: list[StepFigures] = []
    for at in range(0, len(figures), 2):
        pair = figures[at : at + 2]
        kept.append(max(pair, key=lambda each: _distance(each, kept[-1] if kept else pair[0])))
    return kept


def _halved_losses(losses: StepLosses) -> StepLosses:
    kept: list[int] = []
    for at in range(0, len(losses.steps), 2):
        before = losses.losses[kept[-1] if kept else at]
        pair = range(at, min(at + 2, len(losses.steps)))
        kept.append(max(pair, key=lambda index: _factor(losses.losses[index], before)))
    return replace(
        losses,
        steps=tuple(losses.steps[index] for index in kept),
        losses=tuple(losses.losses[index] for index in kept),
    )


def _peak(totals: StepTotals) -> int:
    return totals.peak or 0


def _distance(figures: StepFigures, before: StepFigures) -> float:
    """Return how far the figures of a step are from those of the one before: the logarithm of the largest factor."""
    return max(_factor(figures.loss, before.loss), _factor(figures.total, before.total))


def _factor(value: float | None, before: float | None) -> float:
    if value is None:
        return -1.0
    if not math.isfinite(value):
        return math.inf
    if not value or not before or not math.isfinite(before):
        return 0.0
    return abs(math.log(abs(value)) - math.log(abs(before)))
