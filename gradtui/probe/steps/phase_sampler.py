"""Sample the current phase periodically from the sampler thread, since an event at every change would be far too frequent."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe.runtime import RunClock
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.protocol.events import PhaseSampled
from gradtui.protocol.vocabulary import Phase


class PhaseSampler:
    """Reads the phase and the count of micro-steps of the training thread, and returns an event when they have changed."""

    period_s = 0.125

    def __init__(self, phase: Callable[[], Phase], counter: StepCounter, clock: RunClock) -> None:
        self._phase = phase
        self._counter = counter
        self._clock = clock
        self._last: tuple[Phase, int] | None = None

    def sample(self) -> PhaseSampled | None:
        """Return the current phase as an event, None if nothing has changed."""
        now = (self._phase(), self._counter.micro_steps)
        if now == self._last:
            return None
        self._last = now
        return PhaseSampled(self._clock.at(), self._counter.steps, *now)
