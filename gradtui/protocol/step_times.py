"""Where the time of training steps went: the parts of a step, and what was measured of them."""

from __future__ import annotations

from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Measurement


class StepPart(str, Enum):
    """What the host's time of a training step went to. The parts of a step add up to its time."""

    WAIT = "wait"
    """Waiting for the next batch of a DataLoader."""
    PREPARE = "prepare"
    """From the arrival of a batch to the forward: the script moves it to a device, or transforms it."""
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    """Optimizer steps and `zero_grad`."""
    EVALUATION = "evaluation"
    """Forwards without gradients, with the batches for them and what the script does between them."""
    SAVING = "saving"
    """Calls of `torch.save`."""
    OTHER = "other"
    """The script's own code between the other parts, such as logging."""
    GRADTUI = "gradtui"
    """What gradtui's hooks took."""

    __str__ = str.__str__
    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True)
class PartTime:
    """Host seconds of one part of the steps. A sampled step is longer by gradtui's own work, except for some parts."""

    part: StepPart
    seconds: float
    """In all steps."""
    usual_seconds: float
    """In the steps that were not sampled."""
    median: float | None
    p95: float | None
    """The median and the 95th percentile (nearest rank) of the newest steps that were not sampled, since the newest change of
    the run by a command; None before the first. Where optimizers take turns, each round counts as its mean step."""
    early_median: float | None
    late_median: float | None
    """The medians of the first and of the last of them: of 64 each, or of a quarter of fewer steps; None before four each."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """How a DataLoader loads its batches. None: unknown, or without meaning."""

    workers: int
    batch_size: int | None = None
    is_persistent: bool = False
    """Whether the workers live on when an epoch ends."""
    same_order: int = 0
    """The number of its epochs so far, if each began with the same samples although the sampler shuffles; 0 otherwise."""
    sampler: str = ""
    """The class of that sampler."""
    copied_generator: str = ""
    """The generator of random numbers of the data set that each worker has a copy of, as "Class.attribute"."""


@dataclass(frozen=True, slots=True)
class StepTimesMeasured(Measurement):
    """Where the time of all steps so far went, the first one excepted. It replaces the event before it."""

    steps: int
    unsampled_steps: int
    steps_with_evaluation: int
    parts: tuple[PartTime, ...]
    loader: LoaderSettings | None = None
    """Of the DataLoader that yields the training batches; None where there is none."""
    threads: int | None = None
    """Threads of the CPU that torch uses for one operation (`torch.get_num_threads`)."""
    early_step: float | None = None
    late_step: float | None = None
    """The medians of the time of the same first and last steps as in `PartTime`, without gradtui's."""
    steps_with_validation: int = 0
    """Of the steps with an evaluation, those in which the script called a model that trains in eval mode."""
    anomaly_detection: bool = False
    """Whether `torch.autograd.set_detect_anomaly` was on in the newest sampled backward."""
