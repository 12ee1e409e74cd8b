"""The parts of `RunSummary` about losses, gradients and logged metrics. None is unknown."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.json_objects import INLINED, Number


@dataclass(frozen=True)
class Course:
    """The ends and the extremes of a curve, each with its step."""

    first: Number
    first_step: int | None
    last: Number
    last_step: int | None
    min: Number
    min_step: int | None
    max: Number
    max_step: int | None
    measured_steps: int


@dataclass(frozen=True)
class OptimizerPlace:
    """Which optimizer a curve is of."""

    name: str
    """The models whose parameters it owns."""
    optimizer: int | None
    """Its place in `optimizers`; None for a script that updates its parameters itself."""
    is_main: bool
    steps: int | None


@dataclass(frozen=True)
class LossCourse:
    """The loss of an optimizer."""

    place: OptimizerPlace = field(metadata=INLINED)
    of_backwards: str | None
    """What it is of several backwards of a step, `mean` or `sum`; None where each step has one."""
    course: Course = field(metadata=INLINED)


@dataclass(frozen=True)
class NormCourse:
    """The total norm of the gradients that an optimizer applied."""

    place: OptimizerPlace = field(metadata=INLINED)
    course: Course = field(metadata=INLINED)


@dataclass(frozen=True)
class MicroStepNorms:
    """The norm accumulated after each micro-step of a step, before clipping."""

    step: int
    accumulated: tuple[Number, ...]


@dataclass(frozen=True)
class JointGradient:
    """The statistics of the gradients of several parameters that train, as of one tensor."""

    tensors: int
    of: int
    """Number of parameters that train; `tensors` of them have statistics."""
    first_step: int
    last_step: int
    max_abs: Number
    mean: Number
    std: Number
    zero_fraction: Number
    not_finite: int
    """Number of elements that are NaN or infinite."""
    weight_norm: Number
    """L2 norm before the step."""
    update_ratio: Number
    ratio_tensors: int
    """Number of those whose own ratio is known."""
    ratio_is_exact: bool
    """False if it is that of a sample of the elements."""


@dataclass(frozen=True)
class GradientNorm:
    """The L2 norm of all gradients as the main optimizer applied them."""

    since_step: int
    course: Course = field(metadata=INLINED)
    of_steps: int
    """Steps of the main optimizer since `since_step`."""
    unconfirmed_steps: int
    not_finite_steps: int
    """Measured steps with NaN or Inf."""
    micro_steps: MicroStepNorms | None
    gradient: JointGradient | None


@dataclass(frozen=True)
class Batch:
    """A batch that a DataLoader has yielded."""

    epoch: int | None
    """From 1."""
    number: int
    """In its epoch, from 1."""
    count: int | None
    """The number of batches of an epoch."""
    before: int
    """The number of batches before it that may be meant as well, since gradients accumulate over several."""
    samples: tuple[int, ...]
    """The indices of its samples in the data set of the DataLoader, the first 32."""
    sample_count: int
    """The number of its samples; 0 where it is unknown."""
    data_set: str
    """The class of that data set."""
    is_stream: bool
    """It is an `IterableDataset`, which has no indices."""


@dataclass(frozen=True)
class BadStepOutcome:
    """What the first step that ended after NaN or Inf had appeared did with them."""

    step: int
    left_out_by: str
    """`scaler` or `script`; empty if neither left the step out."""
    weights_are_finite: bool
    parameter: str | None
    """One whose weights are not finite."""
    others: int
    """The number of others."""


@dataclass(frozen=True)
class Spike:
    """A step whose loss or gradient norm was far above that of the steps before."""

    step: int
    metric: str
    """`loss` or `norm`."""
    value: Number
    usual: Number
    """The median of the values before it."""
    limit: Number
    """The value above which it is a spike."""
    micro_step: int
    """Of a loss: that of which backward of the step it is, from 1."""
    clipped_at: Number
    """Of a norm: to what the script clips."""
    back_at: int | None
    """The first later step whose value was no spike."""
    stays: bool
    """The values after it have stayed as high."""
    batch: Batch | None
    other_batches: tuple[Batch, ...]
    """Those of other DataLoaders, which the step took too."""
    seconds: Number
    """Of the run."""
    in_words: str


@dataclass(frozen=True)
class BadStep:
    """Where NaN or Inf appeared first."""

    step: int
    value: str
    """`NaN` or `Inf`."""
    phase: str | None
    module: str | None
    until: str | None
    is_input: bool
    """They came with an input of the module."""
    parameter: str | None
    others: int
    exact: bool
    operation: str | None
    cause: str | None
    """What they were made of, such as `log of 0`."""
    dtype: str
    """In which the operation computed; empty where it is unknown or says nothing."""
    batch: Batch | None
    other_batches: tuple[Batch, ...]
    """Those of other DataLoaders, which the step took too."""
    outcome: BadStepOutcome | None
    seconds: Number
    """Of the run."""
    last_finite_step: int | None
    earliest_step: int
    in_words: str


@dataclass(frozen=True)
class ParameterGradient:
    """The statistics of a parameter's gradient, over the elements that it stores."""

    step: int
    max_abs: Number
    mean: Number
    std: Number
    zero_fraction: Number
    """Share of all elements, 0 to 1."""
    not_finite: int
    """Number of elements that are NaN or infinite."""
    weight_norm: Number
    """L2 norm before the step."""
    update_ratio: Number
    """L2 norm of the step's update divided by that of the parameter."""
    ratio_is_exact: bool
    """False if it is that of a sample of the elements."""


@dataclass(frozen=True)
class MetricCourse:
    """The ends and the extremes of a metric that the script logs. Its steps are those of gradtui."""

    name: str
    source: str
    """The library whose call gradtui has read: `wandb`, `tensorboard`, `lightning`, `transformers`, `accelerate`, `mlflow`,
    `trackio`, `aim` or `tqdm`."""
    of: str | None
    """`training` or `validation`, by its name or by when it was logged; None where neither says so."""
    course: Course = field(metadata=INLINED)
