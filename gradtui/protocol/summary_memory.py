"""The parts of `RunSummary` about memory and the time of phases. Sizes are bytes, times seconds; None is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import INLINED, Number
from gradtui.protocol.vocabulary import HeldStorage, MemoryBytes


@dataclass(frozen=True)
class PhaseSummary:
    """A phase of the run, over all steps."""

    seconds: Number
    """Host time."""
    device_seconds: Number
    """Device time in the `device_steps` steps that were timed; None if none was."""
    device_steps: int
    count: int
    bytes_end: MemoryBytes | None
    """What is held when it ends, by category."""
    bytes_end_step: int | None
    other_at_load: int | None
    """The part of `other` from before the first forward."""
    other_first_step: int | None
    other_since: int | None
    bytes_peak: int | None
    peak_step: int | None
    """0 before the first step."""
    peak_exact: bool | None
    """False if `bytes_peak` is a lower or an upper bound."""
    peak_models: tuple[str, ...]
    exact: bool | None
    """Whether every category of `bytes_end` was measured."""
    peak_bound: str | None = None
    """`exact`, `at least`, `at most` (the sum of the peaks of several devices), or `about`."""


@dataclass(frozen=True)
class RunPeak:
    """The highest total of the run."""

    step: int
    since_step: int
    """It may be of any step from this one to `step`."""
    phase: str | None
    bytes: int
    exact: bool
    """False if it is a lower or an upper bound."""
    bound: str | None = None
    """As `PhaseSummary.peak_bound`."""


@dataclass(frozen=True)
class MemorySpike:
    """A step whose peak was far above those around it."""

    step: int
    phase: str | None
    peak_bytes: int
    usual_bytes: int
    """The median of the steps before."""
    steps: int
    """Number of such steps in a row."""


@dataclass(frozen=True)
class DevicePeak:
    """The memory of one of several devices."""

    index: int
    bytes_end: int | None
    """Its newest total."""
    bytes_peak: int | None
    """Its highest total of the run."""


@dataclass(frozen=True)
class StepMemory:
    """The memory of every step."""

    peak: RunPeak | None
    spike_count: int
    spike_count_exact: bool
    spikes: tuple[MemorySpike, ...]
    devices: tuple[DevicePeak, ...] = ()
    """Each device, if the models are on several."""
    fullest: str = ""
    """Which of several devices is nearest to its limit at its peak, in words."""
    before_training: int | None = None
    """Bytes in no category before the first forward, which `peak` contains."""
    notes: tuple[str, ...] = ()
    """What stays alive, what grows, what is most, in words."""


@dataclass(frozen=True)
class PeakHolding:
    """Bytes of the tensors of one kind in one module at the peak of a step."""

    kind: str
    module: str | None
    bytes: int
    tensors: int
    place: str = ""
    """The path of the module, or its name where it is a model."""


@dataclass(frozen=True)
class StepPeak:
    """The peak of the last step whose memory was profiled, and its holders."""

    step: int
    bytes: int
    phase: str
    module: str | None
    holdings: tuple[PeakHolding, ...]
    place: str = ""
    """That module in words."""
    whole: bool = True
    """Whether every allocation of the step was followed."""


@dataclass(frozen=True)
class DeviceParts:
    """Where the bytes of a CUDA device are."""

    scope: str | None
    """Whose memory `total` is: that of this `process`, or of all on the `device`."""
    total: int | None
    context: int | None
    outside: int | None
    """`context` with all other processes, where that of this process is unknown."""
    cached: int | None
    rounding: int | None
    requested: int | None
    allocated: int | None
    reserved: int | None
    requested_peak: int | None
    """The peaks are what the script would read."""
    allocated_peak: int | None
    reserved_peak: int | None
    device_used: int | None
    """Of all processes."""
    device_total: int | None
    driver_reserved: int | None
    """What the driver keeps for itself of the total. `device_used` contains it where it is None."""
    other_processes: int | None


@dataclass(frozen=True)
class DeviceEntry:
    """One CUDA device."""

    index: int
    name: str
    parts: DeviceParts = field(metadata=INLINED)


@dataclass(frozen=True)
class DeviceMemory:
    """The CUDA device that holds most of the models' bytes, and every one of which torch has reserved memory."""

    step: int
    parts: DeviceParts = field(metadata=INLINED)
    devices: tuple[DeviceEntry, ...]


@dataclass(frozen=True)
class Checkpointed:
    """A module with operations in checkpointed regions."""

    module: str
    recomputed_bytes: int | None
    """What backward computes again."""
    kept_bytes: int | None
    """The inputs that a region keeps."""


@dataclass(frozen=True)
class LivingGraphs:
    """Graphs that no backward has reached."""

    step: int
    forwards: int
    at_least: bool
    since_step: int
    """The step of the oldest one; 0 before the first step."""
    bytes: int
    """What they keep."""


@dataclass(frozen=True)
class FailedAllocation:
    """An allocation that failed."""

    number: int
    step: int
    device: str
    message: str
    phase: str
    module: str | None
    whole: bool
    """False if the bytes are lower bounds."""
    file: str | None
    """The file with the report."""
    seconds: Number
    """Of the run."""
    requested_bytes: int | None
    bytes: Mapping[str, int | None] | None
    """By category, and `total`."""
    largest: tuple[HeldStorage, ...]
    in_words: str = ""
