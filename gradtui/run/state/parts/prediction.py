"""What was forecast of a change that was made, kept to be compared with what is measured afterwards."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.effects import StepMemory
from gradtui.protocol.forecasts import Change, TimeForecast, duration_ratio


@dataclass(frozen=True)
class Prediction:
    """The forecast change of a step's memory in bytes; what appears is positive. None where it was not forecast."""

    activations: int | None
    """What autograd keeps for backward."""
    gradients: int | None
    """The gradients when backward ends."""
    optimizer_state: int | None
    """What the optimizers keep after their next step, by their documented rules."""
    peak: int | None
    """The highest total within the step, an estimate."""
    is_exact: bool
    """Whether the planner has computed `activations` and `gradients`, instead of the rules."""
    time: TimeForecast | None = None
    """The duration of a step, an estimate."""
    others: int = 0
    """Number of other changes at the same step boundary that it includes, as those of one plan."""

    @property
    def duration_ratio(self) -> float | None:
        """The duration of a step with the change, divided by that without; None if it was not forecast."""
        return duration_ratio(self.time, None)

    @property
    def total(self) -> int | None:
        """The total when backward ends: the activations are freed by then."""
        if self.gradients is None or self.optimizer_state is None:
            return None
        return self.gradients + self.optimizer_state

    def undone(self) -> Prediction:
        """Return what an undo of the change brings.

        Optimizer state that a freeze has dropped comes back. The state of parameters that began to train stays, as after any
        other freeze, in each phase of the step.
        """
        state = self.optimizer_state
        stays = None if state is None else max(0, state)
        return Prediction(
            _negative(self.activations),
            _negative(self.gradients),
            None if state is None else max(0, -state),
            None if self.peak is None or stays is None else stays - self.peak,
            self.is_exact,
            self.time.undone() if self.time is not None else None,
        )

    def after(self, name: str, before: StepMemory) -> int | None:
        """Return the bytes of a value of `StepMemory` that this forecast, given the step before the change."""
        change, now = getattr(self, name), getattr(before, name)
        return None if change is None or now is None else now + change


@dataclass(frozen=True)
class ChangesTogether:
    """The changes of what trains and of what is checkpointed that were made at one step boundary so far."""

    step: int
    """The last step before them."""
    trainable: str
    """By parameter: "1" if it required a gradient before them."""
    checkpointed: frozenset[int]
    """The modules that were checkpointed before them."""
    change: Change
    """All of them as one change."""
    optimizer_state: int | None
    """Bytes of optimizer state that appear with them, by the documented rules."""
    commands: tuple[int, ...]
    """The ids of their commands."""


def _negative(size: int | None) -> int | None:
    return None if size is None else -size
