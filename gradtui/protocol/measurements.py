"""The events that carry what was measured; all events are found in `gradtui.protocol.events`."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.event import Event, Measurement
from gradtui.protocol.histogram import GradientHistogram
from gradtui.protocol.vocabulary import GradientHop, GradientStats, HeldStorage, Holding, MemoryBytes, Phase


@dataclass(frozen=True, slots=True)
class GradientsMeasured(Measurement):
    """L2 norms of the gradients as the optimizer applied them at `step`.

    `total` and `loss` are None where unknown. `norms` is aligned with the known parameters (None: no gradient), and is
    itself None when only the total was read.
    """

    total: float | None
    loss: float | None
    norms: tuple[float | None, ...] | None
    before_clipping: float | None = None
    """The total before the script clipped it by norm, None if it did not, or more than once."""
    clipped_at: float | None = None
    """The norm it clipped at."""
    as_applied: bool = True
    """False in a script without an optimizer that has cleared its gradients by itself: they were read when backward ended,
    and it may have changed them before it applied them."""
    norm_steps: tuple[int | None, ...] | None = None
    """Aligned with `norms`: the step that each is of. None where all are of `step`. In a GAN a parameter keeps the norm of its
    own optimizer's last step."""


@dataclass(frozen=True, slots=True)
class NonFiniteFound(Event):
    """Values that are not finite have appeared in `step`, the first ones since the start or since all were finite again."""

    number: int
    """Which time of the run this is, from 1."""
    value: str
    """`NaN` or `Inf`."""
    phase: Phase | None
    """`data`: the batch holds them; `load`: weights did before the first step; `forward`: the loss is not finite;
    `backward`: the loss is and a gradient is not; `optimizer`: the gradients were and weights are not. None: forward, or an
    update since `last_finite`."""
    last_finite: int | None
    """The last step before that was measured and found finite; None if there was none."""
    module: str | None = None
    """Path of the module whose operation gave them in forward; None outside of any, or where it is not known."""
    until: str | None = None
    """Of what they may have come from, the last module; the same one where that is known."""
    is_input: bool = False
    """They were in what the module was given from outside of autograd's graph."""
    parameter: str | None = None
    """Path of the parameter whose gradient (of those the one nearest to the loss) or whose weights hold them."""
    others: int = 0
    """How many more parameters there are like it."""
    exact: bool = True
    """False where phase, module, parameter or step may be another one."""
    earliest: int | None = None
    """The first step that it may come from, where that is not known to be `step`."""
    batch_is_finite: bool = False
    """The step's batch was looked at, and is finite."""
    learning_rate: float | None = None
    """Of that parameter's group, with phase `optimizer`."""
    holds: bool = False
    """Training is held at the next step boundary, because a person asked for that."""


@dataclass(frozen=True, slots=True)
class MicroStepMeasured(Measurement):
    """The L2 norm of all that has accumulated in `.grad` by the end of a backward that serves `step`; sent only on request.

    Before clipping, and without a loss scaler's factor.
    """

    number: int
    """Which micro-step of its step it is, from 1."""
    total: float


@dataclass(frozen=True, slots=True)
class GradientFiguresMeasured(Measurement):
    """More of the gradients of `step` than their norms, for those parameters whose turn it was."""

    figures: tuple[GradientStats, ...]


@dataclass(frozen=True, slots=True)
class GradientHistogramsMeasured(Measurement):
    """How the elements of the gradients of `step` are spread, of the parameters that a viewer watches."""

    histograms: tuple[GradientHistogram, ...]


@dataclass(frozen=True, slots=True)
class MemoryMeasured(Measurement):
    """Memory at the end of a phase. `step` is the step that the phase belongs to, 0 before the first one.

    `peak` is the highest total known within the phase; `peak_exact` is False where it is only a lower bound.
    `exact` says that every category was measured, none estimated.
    """

    phase: Phase
    held: MemoryBytes
    peak: int | None
    peak_exact: bool
    exact: bool
    models: tuple[int, ...] = ()
    """Numbers of the models that had run in that step by then; the only model's number where there is one."""


@dataclass(frozen=True, slots=True)
class DeviceTimesMeasured(Measurement):
    """Device time of `step`, an examined one, between timing events on the device's current stream.

    It includes the time that the stream was idle, and leaves out gradtui's own operations.
    """

    phases: tuple[tuple[Phase, float], ...]
    """Seconds in each phase that occurred."""
    own: float
    """Seconds of gradtui's own operations."""


@dataclass(frozen=True, slots=True)
class GraphsAlive(Event):
    """Graphs are alive although no backward of `step` has reached them, or after an evaluation; sent when that changes."""

    forwards: int
    """How many calls of root modules have made them; 0 when the last of them is gone."""
    at_least: bool
    """There may be more: not every call is noted, and a search may end early."""
    since_step: int
    """The step of the oldest one; where `at_least`, perhaps a later one. 0: before the first step."""
    bytes: int
    """What they keep, which the ledger counts as activations."""


@dataclass(frozen=True, slots=True)
class SavedBytesMeasured(Measurement):
    """Bytes that autograd keeps for backward, by the module whose own operations saved them (not its children's)."""

    by_module: tuple[int, ...]
    unattributed: int
    total: int
    upstream: tuple[int, ...] = ()
    """By module: a parameter of another module whose gradient is computed through it, so that what passing on needs is kept;
    -1 where there is none. Empty where it was not looked for."""
    recomputed: tuple[int | None, ...] = ()
    """By module: bytes that backward computes again, because the operations are within a checkpointed region; None where it
    is within one and nobody saw how many. Empty where nothing is checkpointed."""
    region_inputs: tuple[int, ...] = ()
    """By module: bytes that checkpointed regions keep for that, under the innermost module that a region is within. They are
    among `by_module`, save those that something else keeps too. Empty where nothing is checkpointed."""


@dataclass(frozen=True, slots=True)
class GradientFlowMeasured(Measurement):
    """How far the gradient of a step came, and what decides it. Everything is aligned with the known modules or models.

    An evaluation before any training step is told of too, with an empty `reach`: no gradient was asked for.
    """

    optimizer: int
    """Place of the optimizer whose step it was; -1 where the script updates its parameters itself."""
    reach: str
    """A letter of `vocabulary.Reach` per module."""
    grad_modes: str
    """A letter of `vocabulary.GradMode` per module; one that is not called itself goes with the one that holds it."""
    training: str
    """`Module.training` as "1" or "0" per module."""
    called: tuple[int, ...]
    """Per module: in which place of the order of first calls it was called, from 1 on; 0 if it was evaluated by itself before
    the step, -1 if it was not called. Empty with `reach`."""
    gradients: tuple[int, ...]
    """Per model: bytes that `.grad` of its parameters holds when the step has ended."""
    buckets: tuple[int, ...] = ()
    """Per model: bytes of a data-parallel wrapper's buckets, which hold those gradients once more. Empty with `reach`."""


@dataclass(frozen=True, slots=True)
class GradientPathFound(Event):
    """How a gradient comes from the loss to a parameter or module in one backward: the way with the fewest operations."""

    path: str
    """What was asked for."""
    parameter: int
    """Its place; -1 for a module."""
    module: int
    """Its place, or that of the module that owns the parameter."""
    found: bool
    """False: no operation of this backward leads to it. Of a frozen parameter: none is of its module, or uses it."""
    hops: tuple[GradientHop, ...]
    """From the loss to it. Where it was not found, as far as the gradient comes: to the first operation after its module ran
    that backward runs through, or to the first one of a module that holds it; empty where its module did not run."""
    onward: tuple[GradientHop, ...]
    """Where a gradient only passes through (a frozen parameter, a module): from there on to `upstream`. It begins with the hop
    that `hops` ends with."""
    upstream: int
    """The place of the trainable parameter that this leads to; -1 where there is none."""
    ways: int
    """How many ways there are from the loss to it, counted up to `vocabulary.MAX_WAYS`."""
    takers: int
    """How many operations take the parameter; 0 where that was not counted."""
    operations: int
    """How many were looked at in all; 0 where no graph was: there was no backward, or one too deep to be looked at."""
    whole: bool
    """False where the graph has more than are looked at, and it was not found among those."""
    hidden: bool
    """It may be within an operation that stands for the code of several modules."""


@dataclass(frozen=True, slots=True)
class OptimizerStateRead(Event):
    """Bytes that optimizers keep for a parameter, or for all in a module, each storage once, wherever they are."""

    path: str
    bytes: int
    entries: tuple[tuple[str, int], ...]
    """(name as the optimizer has it, bytes), the largest first; the small ones together as the last, with an empty name."""


@dataclass(frozen=True, slots=True)
class StepMemoryProfiled(Event):
    """Memory within one step, as every operation left it, in bytes."""

    curve: tuple[int, ...]
    """The highest total of each of at most some hundred equal stretches of the step, in the order of its operations."""
    changes: int
    """How many allocations and frees the curve stands for."""
    phases: tuple[tuple[Phase, int], ...]
    """Where on the curve each phase begins."""
    peak: int
    peak_at: int
    """Its place on the curve."""
    peak_phase: Phase
    peak_module: int
    """Place of the module whose operation made it, -1 outside of any known one."""
    holdings: tuple[Holding, ...]
    """Who held those bytes, largest first; the last one is `other`."""
    highest: tuple[int | None, ...]
    """By module: the highest total while it ran, forward or backward; None if it did not run."""
    whole: bool
    """False if there were more allocations than are followed."""


@dataclass(frozen=True, slots=True)
class ParametersClassified(Event):
    """One state letter per known parameter, and "1" or "0" per parameter for `requires_grad`."""

    states: str
    trainable: str
    reasons: str = ""
    """A letter of `vocabulary.StateReason` per known parameter; empty where no cause was seen of any."""


@dataclass(frozen=True, slots=True)
class PhaseSampled(Measurement):
    """The phase the training thread was in when a clock looked."""

    phase: Phase
    micro_step: int


@dataclass(frozen=True, slots=True)
class DeviceSampled(Measurement):
    """Numbers read on a clock, off the training thread; None where the machine does not tell.

    Bytes; `utilisation` is a fraction of 1. `device_process` is what the driver says this process holds, `device_used`
    what all processes hold. `requested`, `allocated` and `reserved` are the allocator's, of the same device: what was asked
    for, the blocks handed out for it, and what was taken from the driver; their peaks are what the script would read.
    """

    source: str
    host_rss: int | None
    host_total: int | None
    device_used: int | None
    device_total: int | None
    device_process: int | None
    allocated: int | None
    reserved: int | None
    utilisation: float | None
    requested: int | None = None
    requested_peak: int | None = None
    allocated_peak: int | None = None
    reserved_peak: int | None = None


@dataclass(frozen=True, slots=True)
class OutOfMemory(Event):
    """An allocation failed, whether or not the script caught what was raised, and who held the memory at that moment."""

    number: int
    """Which failure of the run this is, from 1. After the first few only some are told, and those without any bytes."""
    device: str
    """Where there was no room: `cpu`, `cuda:0`."""
    message: str
    """The first line of what torch or Python said; empty where it had not said anything yet."""
    requested: int | None
    """Bytes that were asked for, None where nobody told."""
    phase: Phase
    module: str | None
    """Path of the innermost module whose forward was running or whose operation's backward was; "" for a model's root, None
    where there was none or it is not known."""
    categories: tuple[tuple[str, int], ...]
    """(memory category, bytes) on that kind of device, each storage once; empty where nothing was looked at."""
    total: int | None
    """What the allocator had given out; what the categories leave of it is *other*."""
    largest: tuple[HeldStorage, ...]
    whole: bool
    """False if the time for looking ran out: the categories are lower bounds then."""
    file: str | None
    """The black box; None if it was not written."""
    trouble: str | None
    """Why not, in words."""
