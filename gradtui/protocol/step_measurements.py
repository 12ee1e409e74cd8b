"""Measurements of every step: loss, gradient norm and memory totals, and the spikes found in the totals."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.measurements import Event, Measurement
from gradtui.protocol.vocabulary import Phase


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What the probe measured of one step of one optimizer. None where it was not measured."""

    step: int
    optimizer: int
    """Index of the optimizer that made the step; -1 where the script updates its parameters itself."""
    loss: float | None
    loss_of: str = ""
    """How `loss` combines those of the step's backwards: `mean`, or `sum` where the script divides each loss by their number.
    Empty for a single backward."""
    total: float | None = None
    """The L2 norm of all gradients as they were applied."""
    before_clipping: float | None = None
    """As in `GradientsMeasured`."""
    clipped_at: float | None = None
    as_applied: bool = True


@dataclass(frozen=True, slots=True)
class StepLosses:
    """The losses of some steps of one optimizer, in their order. The figures of these steps have none."""

    optimizer: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepsMeasured(Measurement):
    """Loss and total norm of steps for which there is no `GradientsMeasured`, the newest step last.

    `losses` are those of steps with a single backward that were handled together.
    """

    figures: tuple[StepFigures, ...]
    losses: tuple[StepLosses, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Memory of one step in bytes, without its parts. None where it was not measured.

    `peak_exact` is False where no allocator keeps a peak: `peak` is then the highest of the totals.
    """

    step: int
    forward: int | None
    """The total when backward began; of several backwards the highest."""
    backward: int | None
    """The total when backward ended; of several backwards the highest."""
    optimizer: int | None
    """The total when the optimizer's step had ended."""
    peak: int | None
    peak_exact: bool = False
    forward_peak: int | None = None
    """The highest total from the end of the step before (or of an evaluation) to the beginning of backward; None where no
    allocator keeps a peak."""
    backward_peak: int | None = None
    optimizer_peak: int | None = None
    """The highest total from the end of backward to that of the optimizer's step."""
    unread: int = 0
    """The number of steps before this one that were not read. An exact `peak` above the others may be of one of them."""
    devices: tuple[DeviceMemory, ...] = ()
    """Each device, if the models are on several: since the step before that was read. The peaks above are then sums of theirs
    in a phase, which are upper bounds. Empty for one device."""


@dataclass(frozen=True, slots=True)
class StepMemoryMeasured(Measurement):
    """Memory of each of some steps, the newest step last. `exact` is False where the totals are estimates."""

    totals: tuple[StepTotals, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class PhasePeakMeasured(Event):
    """The allocator's peak of a phase between steps, such as an evaluation, is higher than all before. `step` had ended."""

    phase: Phase
    peak: int
    """Bytes."""
    devices: tuple[DeviceMemory, ...] = ()
    """As in `MemoryMeasured`."""


@dataclass(frozen=True, slots=True)
class MemorySpikeFound(Event):
    """The peak of `step` was far above those of the steps before and after it (`spikes.py` has the rule)."""

    phase: Phase | None
    """The phase with the highest total; None if steps before were not read and may have had it."""
    peak: int
    """The highest total of the step in bytes."""
    usual: int
    """The median of the steps before it, in bytes."""
    number: int
    """The number of this spike in the run, from 1. After the first ones only some are emitted."""
    steps: int = 1
    """How many steps in a row it lasted."""
