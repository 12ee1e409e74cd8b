"""Sample the current phase periodically from the sampler thread, since an event at every change would be far too frequent."""

from __future__ import annotations

from gradtui.probe.runtime import RunClock
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.protocol.events import PhaseSampled
from gradtui.protocol.vocabulary import Phase


class PhaseSampler:
    """Reads two attributes of the training thread, each in one bytecode, and returns an event when they have changed."""

    period_s = 0.125

    def __init__(self, phases: PhaseTracker, counter: StepCounter, clock: RunClock) -> None:
        self._phases = phases
        self._counter = counter
        self._clock = clock
        self._last: tuple[Phase, int] | None = None

    def sample(self) -> PhaseSampled | None:
        """Return the current phase as an event, None if nothing has changed."""
        now = (self._phases.marked() or self._phases.phase, self._counter.micro_steps)
        if now == self._last:
            return None
        self._last = now
        return PhaseSampled(self._clock.at(), self._counter.steps, *now)
