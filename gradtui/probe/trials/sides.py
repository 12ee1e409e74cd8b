"""What one side of a try has measured: by the place of its steps, so that steps with the same batches are pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradtui.protocol.events import Event, GradientsMeasured, StepMemoryMeasured, StepsMeasured, StepTotals
from gradtui.protocol.tries import TriedSide


class Side:
    """One side, from its first step on. Times are nanoseconds."""

    def __init__(self, change: str) -> None:
        self.change = change
        self.ended = ""
        """Why it has ended before its last batch, or never begun."""
        self.diverged_at: int | None = None
        """The place of the first step whose loss is not finite."""
        self.rates: list[tuple[float, ...]] = []
        """The learning rates at the end of each step."""
        self._place_of: dict[int, int] = {}
        """By number of the step."""
        self._losses: dict[int, float] = {}
        self._seconds: list[float] = []
        self._since = self._apart = 0
        self._peaks: list[StepTotals] = []

        self._aside_of: dict[int, int] = {}
        """By number of the step: the place of its batch among those held aside."""
        self._aside: dict[int, float] = {}

    @property
    def places(self) -> int:
        """The number of steps that were begun."""
        return len(self._seconds)

    def step_begins(self, number: int, now: int) -> None:
        """Begin a step, whose batch has just been given: the step with this number."""
        self._place_of[number] = len(self._seconds)
        self._seconds.append(0.0)
        self._since, self._apart = now, 0

    def step_ended(self, now: int, rates: tuple[float, ...]) -> None:
        """End the step: the script requests a batch for the next one. `rates` are the learning rates now."""
        if self._seconds and self._since:
            self.rates.append(rates)
            self._seconds[-1] = (now - self._since - self._apart) / 1e9
            self._since = 0

    def fail(self, why: str) -> None:
        """End the side within its present step, of which nothing counts."""
        self.ended = why
        if self._seconds:
            self._seconds.pop()
        self._place_of = {number: place for number, place in self._place_of.items() if place < self.places}
        self._since = 0

    def aside_begins(self, number: int) -> None:
        """Begin a step with the next batch held aside: the step with this number."""
        self._aside_of[number] = len(self._aside_of)

    def forget_aside(self) -> None:
        """Forget what was measured of them."""
        self._aside_of.clear()

    def loaded(self, nanoseconds: int) -> None:
        """Leave out of the step's time what a further batch of it took to load."""
        self._apart += nanoseconds

    def saw(self, event: Event) -> None:
        """Take losses and peaks from an event."""
        if isinstance(event, GradientsMeasured):
            self._lost(event.step, event.loss)
        elif isinstance(event, StepsMeasured):
            for figures in event.figures:
                self._lost(figures.step, figures.loss)
            for each in event.losses:
                for step, loss in zip(each.steps, each.losses):
                    self._lost(step, loss)
        elif isinstance(event, StepMemoryMeasured):
            self._peaks += [each for each in event.totals if each.step in self._place_of and each.peak is not None]

    def _lost(self, step: int, loss: float | None) -> None:
        place = self._place_of.get(step)
        if loss is not None and step in self._aside_of:
            self._aside.setdefault(self._aside_of[step], loss)
        if place is None or loss is None or step in self._aside_of:
            return
        self._losses.setdefault(place, loss)
        if not math.isfinite(loss) and self.diverged_at is None:
            self.diverged_at = place

    def figures(self) -> TriedSide:
        """Return what was measured."""
        peak = max(self._peaks, key=lambda each: each.peak or 0, default=None)
        return TriedSide(
            self.change,
            tuple(map(self._losses.get, range(self.places))),
            tuple(self._seconds),
            peak.peak if peak is not None else None,
            peak is not None and peak.peak_exact,
            self.ended,
            tuple(map(self._aside.get, range(len(self._aside_of)))),
        )


def rates_of(optimizers: Sequence[Any]) -> tuple[float, ...]:
    """Return the learning rates of all groups that are plain numbers."""
    rates = (group.get("lr") for each in optimizers for group in each.param_groups)
    return tuple(float(rate) for rate in rates if isinstance(rate, (int, float)))


def rates_differ(one: Sequence[tuple[float, ...]], other: Sequence[tuple[float, ...]]) -> bool:
    """Return whether the rates of the groups that both sides have differ in a step."""
    return any(a != b for rates, others in zip(one, other) for a, b in zip(rates, others))
