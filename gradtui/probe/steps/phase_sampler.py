"""Sample the current phase periodically from the sampler thread, since an event at every change would be far too frequent."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe.runtime import RunClock
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.protocol.events import PhaseSampled
from gradtui.protocol.vocabulary import Phase


class PhaseSampler:
    """Reads the phase of the training thread, and returns an event when it has changed."""

    period_s = 0.125

    def __init__(self, phase: Callable[[], Phase], counter: StepCounter, clock: RunClock) -> None:
        self._phase = phase
        self._counter = counter
        self._clock = clock
        self._last: Phase | None = None

    def sample(self) -> PhaseSampled | None:
        """Return the current phase as an event, None if it has not changed."""
        now = self._phase()
        if now is self._last:
            return None
        self._last = now
        return PhaseSampled(self._clock.at(), self._counter.steps, now)
