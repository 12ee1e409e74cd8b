"""What had accumulated in the gradients after each micro-step, where a person follows them. Pure; owned by one thread."""

from __future__ import annotations

from gradtui.protocol.events import MicroStepMeasured

MOST = 256
"""Micro-steps of one step that are kept: the first ones."""


class MicroStepNorms:
    """The norms of the step under way and of the last one that is over."""

    def __init__(self) -> None:
        self.on = False
        """Whether micro-steps are followed now."""
        self._now: tuple[int, list[float]] = (0, [])
        self._over: tuple[int, list[float]] = (0, [])

    def take(self, event: MicroStepMeasured) -> None:
        """One more was measured. The first of a step ends the step before; after a step left out there may be two alike."""
        step, norms = self._now
        if event.number == 1 or event.step != step:
            self._over = (step, norms) if norms else self._over
            self._now = step, norms = event.step, []
        if len(norms) < MOST:
            norms.append(event.total)

    def applied(self, step: int) -> None:
        """Record that an optimizer has applied the accumulated gradients of this step."""
        if self._now[1] and self._now[0] == step:
            self._over = self._now

    def last(self) -> tuple[int, list[float]]:
        """The step and its norms in order: of the last step that is over, of the one under way while there is none."""
        return self._over if self._over[1] else self._now
