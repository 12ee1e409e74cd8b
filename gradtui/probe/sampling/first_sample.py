"""Decide when a large model is sampled for the first time. Runs on the training thread."""

from __future__ import annotations

import enum

from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import StepTime

_LARGE_S = 0.1
"""A model is large if listing its modules and parameters took longer than this, in seconds: some ten thousand of them."""

_STATES_S, _WHOLE_S = 1.0, 4.0
"""Duration of a sample of norms and states, and of a whole sample, in units of the time that listing the same modules and
parameters took (measured with 20,000 parameters: 0.9 and 3.7)."""

_SHARE = 0.05
"""Share of the training time so far that each of the two may take."""


class Extent(enum.Enum):
    """Which measurements a step allows."""

    NOTHING = enum.auto()
    STATES = enum.auto()
    """Norms, and the states of the parameters as far as they can be determined without the graph."""
    WHOLE = enum.auto()


class FirstSample:
    """Delays the first samples of a large model, so that they do not make the run's first steps several times longer.

    The first step pays only for listing the model.
    """

    def __init__(self, view: ModelRegistry, step_time: StepTime) -> None:
        self.is_large = False
        """The current models are large: the memory of their steps is profiled only if the user requests it."""
        self._view = view
        self._step_time = step_time
        self._listing = 0
        self._since = 0
        """The step after which `extent` was first called for the current models."""
        self._waits = False
        self._states_are_due = False

    def extent(self, executed: int, *, is_asked: bool) -> Extent:
        """Return which measurements the step after `executed` ones allows; WHOLE if the user has requested something.

        Called once a step. It returns STATES once.
        """
        if self._listing != self._view.tree.listing:
            self._listing, self._since = self._view.tree.listing, executed
            self.is_large = self._waits = self._states_are_due = self._view.building_s > _LARGE_S
        if is_asked or not self._waits:
            return Extent.WHOLE
        recent = self._step_time.recent
        # The first step of a run includes the time that the script needs for setup before it.
        allowed = min(recent) * _SHARE * (executed - self._since) if len(recent) > 1 else 0.0
        if _WHOLE_S * self._view.building_s <= allowed:
            self._waits = False
            return Extent.WHOLE
        if self._states_are_due and _STATES_S * self._view.building_s <= allowed:
            self._states_are_due = False
            return Extent.STATES
        return Extent.NOTHING

    def wanted(self) -> None:
        """Sample the next steps regardless of cost, since the user has changed something and inspects them."""
        self._waits = False
