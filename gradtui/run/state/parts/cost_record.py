"""The overhead of gradtui in a run. The reducer keeps it."""

from __future__ import annotations

from gradtui.dataclass import dataclass


@dataclass
class CostRecord:
    """The overhead of gradtui."""

    own_seconds: float = 0.0
    """Overhead in the steps that `steps` and `step_seconds` count: all but the first, and without `setup_seconds`."""
    steps: int = 0
    step_seconds: float = 0.0
    setup_seconds: float = 0.0
    """Overhead up to the end of the first step, and what later listings of models and searches for objects took."""
    own_device_seconds: float | None = None
    """Device time of gradtui's own operations, as far as it was read; None if no device was timed."""
    exempt_steps: int = 0
    exempt_seconds: float = 0.0
    """The parts of `steps` and `own_seconds` of steps that were sampled regardless of the budget."""
    paid_steps: int = 0
    paid_seconds: float = 0.0
    """The same of steps that were sampled within the budget."""
    norms_every: int = 1
    ledger_every: int = 1
    readings_late: int = 0
    """Gradients not measured because a device had not finished earlier readings."""
    readings_without_room: int = 0
    """Gradients not measured because a device had no memory left."""
    recent_share: float | None = None
    """Recent overhead as a fraction of the step's time."""
    unended_seconds: float = 0.0
    unended_own_seconds: float = 0.0
    """Times reported since the last step ended: several events report a long step, and its rate is that of the whole step."""
    lately: tuple[float, float, float] | None = None
    """Moving averages of the number of steps per event, their seconds, and the overhead in these. Rates are ratios of these
    averages, so that an event is weighted by its time: a mean of rates would be too high where steps differ in length."""

    @property
    def share(self) -> float | None:
        """Overhead as a share of the steps' time."""
        return self.own_seconds / self.step_seconds if self.step_seconds else None

    @property
    def exempt_share(self) -> float:
        """The part of `share` of steps that were sampled regardless of the budget."""
        # The cost of a sampled step may be reported one event earlier than the step.
        return (
            min(self.exempt_seconds, self.own_seconds - self.paid_seconds) / self.step_seconds
            if self.step_seconds
            else 0.0
        )

    @property
    def paid_share(self) -> float:
        """The part of `share` that the budget governs: that of steps that were sampled within it."""
        return self.paid_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def share_of_others(self) -> float | None:
        """The same of the steps that are not exempt from the budget; None if there is none."""
        if self.steps <= self.exempt_steps or self.step_seconds <= self.exempt_seconds:
            return None
        return max(0.0, self.own_seconds - self.exempt_seconds) / (self.step_seconds - self.exempt_seconds)
