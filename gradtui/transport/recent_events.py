"""The newest measurements on their way to the viewer, which a report of a failed allocation repeats."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gradtui.protocol.events import (
    Event,
    GradientsMeasured,
    MemoryMeasured,
    ModelsFound,
    StepMemoryMeasured,
    StepsMeasured,
)
from gradtui.protocol.vocabulary import Phase

_REPORTED_PHASES = (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.EVAL)
_EVENTS_KEPT = 32
"""Eight steps of three phases and a norm."""


class RecentEvents:
    """Passes events on, and keeps the newest memory breakdowns, losses and norms for reports. Any thread."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._kept: deque[Event] = deque(maxlen=_EVENTS_KEPT)

    def emit(self, event: Event) -> None:
        """Pass an event on."""
        if isinstance(event, MemoryMeasured) and event.phase in _REPORTED_PHASES:
            self._kept.append(event)
        elif isinstance(event, GradientsMeasured):
            # Per-parameter values would take much memory, and are not needed here.
            self._kept.append(GradientsMeasured(event.at, event.step, event.total, event.loss, None))
        elif isinstance(event, (StepsMeasured, StepMemoryMeasured)):
            self._kept.append(event)
        elif isinstance(event, ModelsFound):
            self._kept.clear()
        self._emit(event)

    def newest(self) -> tuple[Event, ...]:
        """Return the kept events, oldest first. Any thread."""
        return tuple(self._kept.copy())
