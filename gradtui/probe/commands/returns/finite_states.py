"""Keep the newest states of the run that are finite, for return policies. Training thread only, at a step boundary.

How often: a copy, with the check that all values are finite, takes at most one fiftieth of the time until the next one, and
the next one comes after a second at least, and after a five-hundredth of the run so far. So it costs at most 2 % of the time,
a return loses at most a few seconds or 0.2 % of the run, and a long run has few of them. After a change by the user, or when
other models or optimizers train, the next one comes at once.

Two are alive at most. The newest one may have been kept after a fault that shows only in the next step: weights that are
finite and too large. So a state is *judged* when a step that began from it was fine, and no other one is kept before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.kept_states import KeptState
from gradtui.probe.steps import ProbeContext
from gradtui.run.state.parts.kept_states import FINITE

_MOST = 2
_SHARE, _OF_RUN = 50, 500
_LEAST_NS = 1_000_000_000
"""Nanoseconds between two copies, however small they are: each is an event."""

Rates = tuple[float | None, ...]


@dataclass(eq=False)
class FiniteState:
    """A kept state, and what is known of it."""

    kept: KeptState
    rates: Rates
    """The learning rates then, of each group; None where it is no number on the host."""
    of: tuple[Any, ...]
    """What was in force and what trained then."""
    entered: int
    """The executed steps when the run had its values last: when it was kept, or returned to."""
    is_judged: bool = False
    """A step that began from it was fine."""
    has_failed: bool = False
    """The run has returned to it. It has failed as long as it has not been judged again."""


class FiniteStates:
    """The newest finite states.

    Args:
        context: the parts of the probe.
        keeping: keeps them.
    """

    def __init__(self, context: ProbeContext, keeping: StateKeeping) -> None:
        self._clock, self._view, self._keeping = context.clock, context.models, keeping
        self._all: list[FiniteState] = []
        self._newest: FiniteState | None = None
        """The one that was kept or returned to last."""
        self._due_at = 0

    @property
    def is_due(self) -> bool:
        """Whether a state is to be kept at this boundary."""
        newest = self._newest
        if newest is None:
            return self._clock.now() >= self._due_at
        return newest.is_judged and (self._clock.now() >= self._due_at or self._now() != newest.of)

    def judge(self, step: int) -> None:
        """Note that `step` was fine."""
        if self._newest is not None and step > self._newest.entered:
            self._newest.is_judged, self._newest.has_failed = True, False

    def keep(self, began: int) -> str | None:
        """Keep the state now. Return why that is not possible; None if it is kept.

        `began`: when the work for it began, by `perf_counter_ns`.
        """
        if (objection := self._keeping.costs_too_much()) is None:
            while len(self._all) >= _MOST:
                worst = min(self._all, key=lambda each: (not each.has_failed, each.kept.number))
                self._keeping.forget_by_itself(worst.kept)
                self._all.remove(worst)
            kept = self._keeping.keep_by_itself(FINITE)
            if isinstance(kept, KeptState):
                rates = rates_of(self._view.live_optimizers())
                self._newest = FiniteState(kept, rates, self._now(), self._keeping.step)
                self._all.append(self._newest)
            else:
                objection = kept
        if objection is None or self._keeping.step:
            self.wait(perf_counter_ns() - began)
        return objection

    def wait(self, took: int) -> None:
        """Let no state be kept for a while, after work of `took` nanoseconds."""
        self._due_at = self._clock.now() + max(_SHARE * took, _LEAST_NS, int(self._clock.at() * 1e9) // _OF_RUN)

    def before(self, step: int, *, only_judged: bool) -> Sequence[FiniteState]:
        """Return the states from before `step`, the best one to return to first.

        That is the newest one to which the run has not returned in vain. With `only_judged`, those that were not judged come
        after the others: what is wrong in `step` may be wrong with them.
        """
        kept = {each.number for each in self._keeping.states}
        # What an optimizer that was made since has in its state would stay.
        optimizers = self._now()[-1]
        known = [
            each
            for each in self._all
            if each.kept.number in kept and each.kept.step < step and each.of[-1] == optimizers
        ]

        def order(state: FiniteState) -> tuple[bool, int]:
            return not state.has_failed and (state.is_judged or not only_judged), state.kept.number

        return sorted(known, key=order, reverse=True)

    def returned_to(self, state: FiniteState) -> None:
        """Note that the run has returned to a state."""
        state.entered, state.is_judged, state.has_failed = self._keeping.step, False, True
        self._newest = state

    def _now(self) -> tuple[Any, ...]:
        return self._keeping.changes, self._view.tree.listing, len(self._view.live_optimizers())


def rates_of(optimizers: Sequence[Any]) -> Rates:
    """Return the learning rate of each group; None where it is no number on the host."""
    found = [group.get("lr") for each in optimizers for group in each.param_groups]
    return tuple(float(each) if isinstance(each, (int, float)) else None for each in found)
