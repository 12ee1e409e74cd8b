"""Keep the state of the run at which a metric of the script was best. Training thread only.

The metric is the first one that the script logs after an evaluation, that is of validation data, and whose name says which
side is better. Its value is that of the weights as long as no step has run since the evaluation, so the copy is made at the
next boundary. At most one such state is kept. All these copies together take at most 2 % of the time: one that would take
more is left out, and the state before it stays, whose name has its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter

from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.kept_states import KeptState
from gradtui.probe.steps import ProbeContext
from gradtui.run.state.over_steps.better_side import BetterSide, better_side
from gradtui.run.state.parts.metrics import side_of

_SHARE = 0.02


class BestState:
    """Receives what the script logs after evaluations, and keeps the best state."""

    def __init__(self, context: ProbeContext, keeping: StateKeeping) -> None:
        self._clock, self._hooks, self._keeping = context.clock, context.hooks, keeping
        self.is_due = False
        """Whether a value was logged since the newest boundary."""
        self._name = ""
        self._better: BetterSide = "lower"
        self._value = math.nan
        """The newest value of the metric, which may be the first of several of one evaluation."""
        self._best = math.nan
        self._logged_at = -1
        self._kept: KeptState | None = None
        self._spent_s = 0.0

    def logged(self, names: Sequence[str], values: Sequence[object], step: int) -> None:
        """Note what was logged after an evaluation, and before the step after `step` executed ones."""
        for name, value in zip(names, values):
            if not isinstance(value, float) or not math.isfinite(value):
                continue
            if not self._name and side_of(name, in_evaluation=True) == "validation":
                side = better_side(name)
                self._name, self._better = (name, side) if side is not None else ("", "lower")
            if name == self._name and name:
                self._value, self._logged_at, self.is_due = value, step, True

    def at_boundary(self, refresh: Callable[[], None]) -> None:
        """Keep the state if it is the best one so far. `refresh` lists the models as they are now."""
        self.is_due = False
        is_newest = self._logged_at == self._keeping.step
        if not is_newest or not self._is_better() or self._spent_s > _SHARE * self._clock.at():
            return
        began = perf_counter()
        with self._hooks.guarded("kept states"):
            refresh()
            self._keep()
        self._spent_s += perf_counter() - began

    def _keep(self) -> None:
        if self._keeping.costs_too_much() is not None:
            return
        if self._kept is not None:
            self._keeping.forget_by_itself(self._kept)
            self._kept = None
        kept = self._keeping.keep_by_itself(f"best {self._name} {self._value:.6g}")
        if isinstance(kept, KeptState):
            self._kept, self._best = kept, self._value

    def _is_better(self) -> bool:
        if math.isnan(self._best):
            return True
        return self._value < self._best if self._better == "lower" else self._value > self._best
