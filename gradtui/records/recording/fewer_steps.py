"""Leave out every other step of events that have the figures of several steps, and keep those that stand out. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

from gradtui.protocol.events import StepFigures, StepLosses, StepMemoryMeasured, StepsMeasured, StepTotals

T = TypeVar("T")


def halved(
    event: StepsMeasured | StepMemoryMeasured, stays: Container[int] = ()
) -> StepsMeasured | StepMemoryMeasured | None:
    """Return the event with one of every two of its steps; None if none can go, and the caller keeps the event or not.

    Args:
        event: the figures of some steps.
        stays: steps that stay in any case.
    """
    if isinstance(event, StepMemoryMeasured):
        totals = tuple(_fewer(event.totals, _step, lambda totals, _: _peak(totals), stays))
        return replace(event, step=totals[-1].step, totals=totals) if len(totals) < len(event.totals) else None
    losses = tuple(_halved_losses(losses, stays) for losses in event.losses)
    of_each: dict[int, list[StepFigures]] = {}
    for figures in event.figures:
        of_each.setdefault(figures.optimizer, []).append(figures)
    kept = [figures for own in of_each.values() for figures in _fewer(own, _step, _distance, stays)]
    if len(kept) == len(event.figures) and losses == event.losses:
        return None
    return replace(event, figures=tuple(sorted(kept, key=_step)), losses=losses)


def _fewer(
    values: Sequence[T], step: Callable[[T], int], distance: Callable[[T, T], float], stays: Container[int]
) -> list[T]:
    """Return of every two values those whose step stays; where neither does, the one that is further from the value before."""
    kept: list[T] = []
    for at in range(0, len(values), 2):
        pair = values[at : at + 2]
        before = kept[-1] if kept else pair[0]
        kept += [value for value in pair if step(value) in stays] or [
            max(pair, key=lambda value: distance(value, before))
        ]
    return kept


def _halved_losses(losses: StepLosses, stays: Container[int]) -> StepLosses:
    pairs = [*zip(losses.steps, losses.losses)]
    kept = _fewer(pairs, itemgetter(0), lambda loss, before: _factor(loss[1], before[1]), stays)
    return replace(losses, steps=tuple(step for step, _ in kept), losses=tuple(loss for _, loss in kept))


def _step(figures: StepFigures | StepTotals) -> int:
    return figures.step


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
