"""What is asked of the planner, and its answer. `gradtui.protocol.events` exports the event."""

from __future__ import annotations

from fractions import Fraction

from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.protocol.measurements import Measurement
from gradtui.protocol.operations import OperationsRecorded
from gradtui.protocol.step_peaks import StepPeaks
from gradtui.protocol.vocabulary import Phase

__all__ = ["Change", "ForecastAsked", "ForecastMade", "MeasuredTimes", "StepPeaks", "TimeForecast", "duration_ratio"]


class Change(NamedTuple):
    """A change of what trains and of what gradtui checkpoints."""

    stops: tuple[int, ...] = ()
    """Indexes of the parameters that stop training."""
    starts: tuple[int, ...] = ()
    """Indexes of the parameters that start to train."""
    checkpoints: frozenset[int] = frozenset()
    """Indexes of the modules that are checkpointed from then on."""
    keeps: frozenset[int] = frozenset()
    """Indexes of the modules that are no longer checkpointed."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """What a step takes as it is now, in seconds, as it was measured."""

    step: float
    """The median of steps that were not sampled."""
    optimizer: float
    """Of `step`: the optimizers' steps and `zero_grad`."""
    forward: tuple[float, ...]
    """By module, without the modules that it calls."""
    backward: tuple[float, ...]
    """The same. What a checkpoint computes again is included."""


class TimeForecast(NamedTuple):
    """The duration of a step with a change, an estimate in seconds."""

    now: float
    """Without the change, as measured."""
    seconds: float
    margin: float
    """The estimate may be off by as much in most cases."""

    def undone(self) -> TimeForecast:
        """Return what the end of the change brings."""
        return TimeForecast(self.seconds, self.now, self.margin)


def duration_ratio(time: TimeForecast | None, work: float | None) -> float | None:
    """Return the duration of a step with a change, divided by that without; by its work where no time was measured."""
    return time.seconds / time.now if time is not None else work


@dataclass(frozen=True, slots=True)
class ForecastAsked:
    """A question: what changes in the bytes and the time of a step."""

    operations: OperationsRecorded
    """The step to repeat."""
    flags: str
    """By parameter: "1" if it requires a gradient now."""
    checkpointed: frozenset[int]
    """The modules that gradtui checkpoints now."""
    sizes: tuple[int, ...]
    """By parameter: bytes of its gradient."""
    change: Change
    optimizer_state: int = 0
    """Bytes of optimizer state that appear with the change, in blocks if `peaks` are."""
    peaks: StepPeaks | None = None
    """The peaks of a step, from which that of the forecast follows; None leaves it out."""
    batch_scale: Fraction | float = 1.0
    """The batch size of the forecast, divided by that of the step. A float stands for the nearest fraction with which the new
    size is a whole number."""
    batch_size: int | None = None
    """The batch size of the step, if it is known; None lets the planner look for it."""
    times: MeasuredTimes | None = None
    """From which the duration of a step follows; None leaves it out."""
    then: ForecastAsked | None = None
    """The question to answer after this one."""


@dataclass(frozen=True, slots=True)
class ForecastMade(Measurement):
    """The answer, from the operations recorded in `step`. Bytes that appear are positive."""

    flags: str
    """By parameter: "1" if it required a gradient before the change."""
    checkpointed: frozenset[int]
    """The modules that gradtui checkpointed before the change."""
    change: Change
    activations: int
    """Bytes that autograd keeps for backward at the end of forward."""
    gradients: int
    """Bytes of `.grad` at the end of backward."""
    unknown: tuple[str, ...] = ()
    """Names of operations whose part is not known; empty if the figures are exact."""
    work: float | None = None
    """The work of a step with the change, divided by that without: an estimate, to tell which is faster; None if unknown."""
    peak: int | None = None
    """Bytes by which the peak of the step changes, an estimate; None if it was not asked for, or cannot be forecast."""
    peak_phase: Phase | None = None
    """The phase of the new peak."""
    is_final: bool = False
    """Whether the peak is known, or cannot be forecast."""
    kept: int | None = None
    """Bytes that autograd keeps for backward without the change."""
    time: TimeForecast | None = None
    """None if it was not asked for, or cannot be forecast."""
    largest: tuple[tuple[int, int], ...] = ()
    """The modules with the largest parts in `activations`, with these bytes; -1 outside of modules. A tensor counts where it is
    saved first, which the change may move."""
