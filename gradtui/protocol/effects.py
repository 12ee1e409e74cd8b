"""What a change of the run has changed in memory and time, as measured before and after it."""

from __future__ import annotations

from gradtui.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The memory of a sampled step (of all optimizers' steps, where a round of training has several), in bytes.

    None where it is unknown.
    """

    step: int
    """The last step of these values."""
    peak: int | None
    """The highest total within the step; None where no allocator keeps a peak."""
    total: int | None
    """The total when backward ended."""
    activations: int | None
    """What autograd kept for backward."""
    gradients: int | None = None
    """The gradients when backward ended."""
    apart: int | None = None
    """The part of `total` that no command changes: the batches, and what is in no category."""
    inputs: int | None = None
    """The arguments of all calls of models in the step."""

    def joined(self, other: StepMemory) -> StepMemory:
        """Return the highest of both values each."""
        highest = other if (other.total or 0) > (self.total or 0) else self
        return StepMemory(
            max(self.step, other.step),
            _highest(self.peak, other.peak),
            _highest(self.total, other.total),
            _highest(self.activations, other.activations),
            _highest(self.gradients, other.gradients),
            highest.apart,
            _highest(self.inputs, other.inputs),
        )


def _highest(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else max(first, second)


@dataclass(frozen=True, slots=True)
class TimeChange:
    """A change of a step's duration that is larger than its noise, in seconds."""

    before: float
    after: float
    margin: float
    """Changes up to this could be noise."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of the run has changed. None where it was not measured."""

    before: StepMemory | None = None
    after: StepMemory | None = None
    time: TimeChange | None = None
    """None also where the durations differ by no more than their noise."""
    joined: tuple[tuple[str, int], ...] = ()
    """The optimizers that parameters joined: the name of the type, the number of parameters."""
    within_noise: tuple[str, ...] = ()
    """The names of the values of `StepMemory` that differ by no more than they did before from batch to batch."""
    others: int = 0
    """Number of other changes at the same step boundary, whose effects the measurement includes."""
