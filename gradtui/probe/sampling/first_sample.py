"""When a large model is sampled for the first time. Runs on the training thread."""

from __future__ import annotations

import enum

from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import StepTime

_LARGE_S = 0.1
"""A model is large if it took longer to list its modules and parameters than this: some ten thousand of them."""

_STATES_S, _WHOLE_S = 1.0, 4.0
"""What a sample of norms and states, and what a whole one takes, in units of what listing the same modules and parameters
took (measured with 20,000 parameters: 0.9 and 3.7)."""

_SHARE = 0.05
"""Each may take this share of the training time so far."""


class Extent(enum.Enum):
    """How much of a step may be sampled."""

    NOTHING = enum.auto()
    STATES = enum.auto()
    """Norms, and the states of the parameters as far as they show without the graph."""
    WHOLE = enum.auto()


class FirstSample:
    """Puts off the first samples of a large model, so that they do not make the run's first steps several times longer.

    Listing the model is all that its first step pays for.
    """

    def __init__(self, view: ModelRegistry, step_time: StepTime) -> None:
        self.is_large = False
        """The present models are large: no step of theirs is taken apart unless the person asks for it."""
        self._view = view
        self._step_time = step_time
        self._listing = 0
        self._since = 0
        """The step after which the present models were first asked for."""
        self._waits = False
        self._states_are_due = False

    def extent(self, executed: int, *, is_asked: bool) -> Extent:
        """How much of the step after `executed` ones may be sampled: all of it if the person has asked for something.

        Asked once a step; the answer is STATES once.
        """
        if self._listing != self._view.tree.listing:
            self._listing, self._since = self._view.tree.listing, executed
            self.is_large = self._waits = self._states_are_due = self._view.building_s > _LARGE_S
        if is_asked or not self._waits:
            return Extent.WHOLE
        recent = self._step_time.recent
        # The first step of a run is as long as what the script did before it.
        allowed = min(recent) * _SHARE * (executed - self._since) if len(recent) > 1 else 0.0
        if _WHOLE_S * self._view.building_s <= allowed:
            self._waits = False
            return Extent.WHOLE
        if self._states_are_due and _STATES_S * self._view.building_s <= allowed:
            self._states_are_due = False
            return Extent.STATES
        return Extent.NOTHING

    def wanted(self) -> None:
        """The person has changed something and looks at the next steps: they are sampled whatever they cost."""
        self._waits = False
