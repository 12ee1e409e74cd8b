"""What the parts of a probe have in common: the clock of the run, the models, the counts, the hooks."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.dataclass import dataclass
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import HookSet, ReadingInterval, RunClock
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.protocol.events import Event


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """Where the parts of a probe emit events, and where they find the time, the models, the counts and the hooks."""

    emit: Callable[[Event], None]
    clock: RunClock
    models: ModelRegistry
    counter: StepCounter
    hooks: HookSet
    norms_interval: ReadingInterval
    totals_interval: ReadingInterval
