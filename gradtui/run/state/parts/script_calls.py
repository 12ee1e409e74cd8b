"""What came of the script's seldom calls, and of its clipping, as far as rules need it."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import events as ev


@dataclass
class ZeroedSteps:
    """Steps whose finite gradients clipping multiplied by 0, because their norm overflowed."""

    count: int = 0
    clipped: int = 0
    """All steps whose norm before clipping was read."""
    first_step: int = 0
    last_step: int = 0


@dataclass
class ScriptCalls:
    """The newest event about each call."""

    loads: dict[int, ev.StateLoaded] = field(default_factory=dict)
    """By number of the call."""
    aliased: dict[tuple[str, int], ev.StateAliased] = field(default_factory=dict)
    """By what happened, and the step after which the state was made."""
    misplaced: dict[int, ev.OptimizerStateMisplaced] = field(default_factory=dict)
    """By index of the optimizer."""
    remade: dict[str, ev.OptimizersRemade] = field(default_factory=dict)
    """By type of the optimizer."""
    missed: dict[tuple[str, int], ev.ScheduleMisses] = field(default_factory=dict)
    """By type of the scheduler and index of its optimizer."""
    clipping: ev.ClippingMeasured | None = None
    zeroed: ZeroedSteps = field(default_factory=ZeroedSteps)

    def take_clipped(self, step: int, before: float, applied: float | None) -> None:
        """Add a step whose norm was read before it was clipped."""
        self.zeroed.clipped += 1
        # An element that is not finite would have become NaN: Inf times 0.
        if before == float("inf") and applied == 0:
            self.zeroed.count += 1
            self.zeroed.first_step = self.zeroed.first_step or step
            self.zeroed.last_step = step
