"""Decide when a large model is sampled for the first time. Runs on the training thread."""

from __future__ import annotations

import enum
from collections.abc import Callable

from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import StepTime

_NORMS_S, _WHOLE_S = 1.0, 4.0
"""Upper bounds of the duration of a sample of norms and states, and of a whole sample, in units of the time that listing the
same modules and parameters took (measured with 20,000 parameters: 0.9 and 3.7)."""

_SHARE = 0.05
"""Share of the training time so far that each of the two may take."""


class Extent(enum.Enum):
    """Which measurements a step allows."""

    NOTHING = enum.auto()
    NORMS = enum.auto()
    """Norms, and the states of the parameters as far as they can be determined without the graph."""
    WHOLE = enum.auto()


class FirstSample:
    """Delays the first samples of a large model, so that they do not make the run's first steps several times longer.

    The first step pays only for listing the model. `put_off` is called with the number of executed steps when the wait begins.
    """

    def __init__(self, view: ModelRegistry, step_time: StepTime, put_off: Callable[[int], None]) -> None:
        self._view = view
        self._step_time = step_time
        self._put_off = put_off
        self._listing = 0
        self._waits = False
        self._norms_left = 0
        """The number of steps whose norms are to be measured during the wait: one round, with a step of each optimizer."""

    def extent(self, executed: int, *, is_requested: bool) -> Extent:
        """Return which measurements the step after `executed` ones allows; WHOLE if the user has requested something.

        Called once a step.
        """
        if self._listing != self._view.tree.listing:
            self._listing, self._norms_left = self._view.tree.listing, self._view.round_length
            self._waits = self._view.is_large
            if self._waits:
                self._put_off(executed)
        if is_requested or not self._waits:
            return Extent.WHOLE
        allowed = _SHARE * self._step_time.total
        if _WHOLE_S * self._view.building_s <= allowed:
            self._waits = False
            return Extent.WHOLE
        if self._norms_left and _NORMS_S * self._view.building_s <= allowed:
            self._norms_left -= 1
            return Extent.NORMS
        return Extent.NOTHING

    def wanted(self) -> None:
        """Sample the next steps regardless of cost, since the user has changed something and inspects them."""
        self._listing, self._waits = self._view.tree.listing, False
