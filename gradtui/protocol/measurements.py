"""The base class of all events, and the events that carry measurements. `gradtui.protocol.events` exports all events."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.step_peaks import StepPeaks
from gradtui.protocol.vocabulary import (
    GradientHop,
    GradientStats,
    HeldStorage,
    Holding,
    MemoryBytes,
    Phase,
)

LOWEST = -44
"""The first bin begins at 2**LOWEST, 5.7e-14."""
BINS = 56
"""Bin `i` counts the elements with 2**(LOWEST + i) <= |g| < 2**(LOWEST + i + 1); the last ends at 4096."""
MAX_WATCHED = 16
"""Maximum number of parameters watched at a time."""


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of everything that happens in a run."""

    at: float
    step: int
    listing: int | None = field(default=None, kw_only=True)
    """The listing of models (`ModelsFound.listing`) that the event's indexes of modules and parameters refer to.

    None if the event has no such indexes, or cannot arrive after a newer listing.
    """


@dataclass(frozen=True, slots=True)
class Measurement(Event):
    """An event that a later one of its kind replaces or continues. A full queue drops measurements and no other events."""


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
    """The total before the script clipped it by norm; None if the script did not clip it, or clipped it more than once."""
    clipped_at: float | None = None
    """The `max_norm` of that clipping."""
    as_applied: bool = True
    """False in a script without an optimizer that cleared its gradients by itself: the probe read them when backward ended, and
    the script may have changed them before it applied them."""
    norm_steps: tuple[int | None, ...] | None = None
    """Aligned with `norms`: the step of each norm. None where all are of `step`. In a GAN a parameter keeps the norm of its
    own optimizer's last step."""
    optimizer: int = -1
    """Index of the optimizer whose step it was; -1 where the script updates its parameters itself, and in old recordings."""
    loss_of: str = ""
    """As in `StepFigures`."""


@dataclass(frozen=True, slots=True)
class MicroStepMeasured(Measurement):
    """The L2 norm of all gradients accumulated in `.grad` at the end of a backward of `step`; emitted only on request.

    It is the norm before clipping, with the loss scaler's factor removed.
    """

    number: int
    """The number of the micro-step within its step, from 1."""
    total: float


@dataclass(frozen=True, slots=True)
class GradientFiguresMeasured(Measurement):
    """Statistics of the gradients of `step` beyond their norms, for the parameters whose turn it was."""

    figures: tuple[GradientStats, ...]


@dataclass(frozen=True, slots=True)
class GradientHistogram:
    """The histogram of the magnitudes of one gradient as it was applied: the count of elements per power of two.

    The exponent of an element gives its bin without rounding, and the limits of float16 and bfloat16 are powers of two. All
    counts are of the `seen` elements: all that the gradient stores unless `estimated`. Elements that a sparse gradient does not
    store count as zeros. For complex elements the magnitude counts.
    """

    parameter: int
    """Index of the parameter."""
    counts: tuple[int, ...]
    """Counts of the `BINS` bins."""
    smaller: int
    """Non-zero elements below the first bin."""
    larger: int
    """Finite elements beyond the last bin."""
    zeros: int
    nan: int
    inf: int
    positive: int
    """Elements above zero, infinity included; the magnitudes of complex elements all count."""
    seen: int
    elements: int
    """Number of elements of the gradient, or of this process's shard of it."""
    is_shard: bool = False
    """The gradient is the local part of a distributed tensor."""

    @property
    def estimated(self) -> bool:
        """Whether the counts are those of a sample of the elements."""
        return self.seen < self.elements


@dataclass(frozen=True, slots=True)
class GradientHistogramsMeasured(Measurement):
    """Histograms of the gradients of `step`, for the parameters that a viewer watches."""

    histograms: tuple[GradientHistogram, ...]


@dataclass(frozen=True, slots=True)
class MemoryMeasured(Measurement):
    """Memory at the end of a phase. `step` is the step of the phase, 0 before the first one.

    `peak` is the highest known total within the phase, in bytes; `peak_exact` is False where it is only a lower bound.
    `exact` says that every category was measured, none estimated.
    """

    phase: Phase
    held: MemoryBytes
    peak: int | None
    peak_exact: bool
    exact: bool
    models: tuple[int, ...] = ()
    """Numbers of the models that had run in that step by the end of the phase; if there is only one model, its number."""
    devices: tuple[DeviceMemory, ...] = ()
    """Each device, if the models are on several: totals are then sums, and an exact peak is the sum of theirs, an upper
    bound. Empty for one device."""


@dataclass(frozen=True, slots=True)
class DeviceTimesMeasured(Measurement):
    """Device time of the sampled step `step`, between timing events on the device's current stream.

    It includes the time that the stream was idle, and excludes gradtui's own operations.
    """

    phases: tuple[tuple[Phase, float], ...]
    """Seconds in each phase that occurred."""
    own: float
    """Seconds of gradtui's own operations."""
    ends: int = 0
    """How often a forward or a backward of the step ended on the host."""
    idle_ends: int = 0
    """Those at which the device had run all that its stream had been given: it waits for the host."""


@dataclass(frozen=True, slots=True)
class GraphsAlive(Event):
    """Graphs are alive although no backward of `step` has reached them, or after an evaluation; emitted when that changes."""

    forwards: int
    """How many calls of root modules made them; 0 when the last of them is gone."""
    at_least: bool
    """There may be more: the probe does not record every call, and a search may end early."""
    since_step: int
    """The step of the oldest one (with `at_least`, possibly of a later one). 0: before the first step."""
    bytes: int
    """Bytes that they keep, which the memory breakdown counts as activations."""


@dataclass(frozen=True, slots=True)
class SavedBytesMeasured(Measurement):
    """Bytes that autograd keeps for backward, by the module whose own operations saved them (not its children's)."""

    by_module: tuple[int, ...]
    total: int
    upstream: tuple[int, ...] = ()
    """By module: the index of a parameter of another module whose gradient is computed through this module, so that autograd
    keeps the tensors needed for passing it on; -1 where there is none. Empty if the probe did not search."""
    recomputed: tuple[int | None, ...] = ()
    """By module: bytes that backward recomputes, because the operations are within a checkpointed region; None where the
    module is within one and the bytes are unknown. Empty where nothing is checkpointed."""
    region_inputs: tuple[int, ...] = ()
    """By module: bytes that checkpointed regions keep for recomputing, under the innermost module that contains a region. They
    are part of `by_module`, except those that something else keeps too. Empty where nothing is checkpointed."""
    operations: int = 0
    """Operations in the graph of the step's largest backward, by their number."""
    earlier_operations: int = 0
    """Those of them that were recorded before the first module call of this step; 0 where no module was called."""


@dataclass(frozen=True, slots=True)
class GradientFlowMeasured(Measurement):
    """How far the gradient of a step comes, and what decides it. All fields are aligned with the known modules or models.

    The probe also emits it for an evaluation before any training step, with an empty `reach`: there was no backward.
    """

    optimizer: int
    """Index of the optimizer whose step it was; -1 where the script updates its parameters itself."""
    reach: str
    """A letter of `vocabulary.Reach` per module."""
    grad_modes: str
    """A letter of `vocabulary.GradMode` per module; a module that is not called itself has the letter of its parent."""
    training: str
    """`Module.training` as "1" or "0" per module. "h": train mode, but the module holds its running statistics."""
    called: tuple[int, ...]
    """Per module: its rank in the order of first calls, from 1; 0 if it was evaluated on its own before the step, -1 if it was
    not called. Empty where `reach` is."""
    gradients: tuple[int, ...]
    """Per model: bytes of its parameters' `.grad` when the step has ended."""
    buckets: tuple[int, ...] = ()
    """Per model: bytes of a data-parallel wrapper's buckets, a second copy of those gradients. Empty where `reach` is."""
    passing: tuple[float | None, ...] = ()
    """Per module: the L2 norm of the gradient at its output, as it flows through in the step's last backward. None where it was
    not read: only frozen modules are, blocks and what is in no block. Empty where none was."""


@dataclass(frozen=True, slots=True)
class GradientPath:
    """The path with the fewest operations that a gradient takes from the loss to a parameter or module in one backward."""

    found: bool = False
    """False: no operation of this backward leads to it. For a frozen parameter: no operation is of its module, or uses it."""
    hops: tuple[GradientHop, ...] = ()
    """From the loss to it. If it was not found, as far as the gradient comes: to the first operation after its module ran
    that backward runs through, or to the first one of a module that contains it; empty if its module did not run."""
    onward: tuple[GradientHop, ...] = ()
    """Where a gradient only passes through (a frozen parameter, a module): from there on to `upstream`. It begins with the
    last hop of `hops`."""
    upstream: int = -1
    """Index of the trainable parameter that `onward` leads to; -1 where there is none."""
    path_count: int = 0
    """Number of paths from the loss to it, counted up to `vocabulary.MAX_PATHS`."""
    use_count: int = 0
    """Number of operations that use the parameter as an input; 0 if not counted."""
    operations: int = 0
    """Number of operations searched; 0 if no graph was searched: there was no backward, or its graph was too deep."""
    whole: bool = True
    """False if the graph has more operations than the probe searches, and it was not found among those."""
    hidden: bool = False
    """It may be within an operation that stands for the code of several modules."""


@dataclass(frozen=True, slots=True)
class GradientPathFound(Event):
    """The path of a gradient to the requested parameter or module `path`."""

    path: str
    parameter: int
    """Index of the parameter; -1 for a module."""
    module: int
    """Index of the module, or of the module that owns the parameter."""
    gradient: GradientPath


@dataclass(frozen=True, slots=True)
class OptimizerStateRead(Event):
    """Bytes of optimizer state for a parameter, or for all parameters in a module, on any device; each storage counts once."""

    path: str
    bytes: int
    entries: tuple[tuple[str, int], ...]
    """(the optimizer's name of the entry, bytes), the largest first. The last one, with an empty name, sums the small ones."""


@dataclass(frozen=True, slots=True)
class StepMemoryProfiled(Event):
    """Memory within one step after every operation, in bytes."""

    curve: tuple[int, ...]
    """The highest total in each of at most some hundred equal intervals of the step, in the order of its operations."""
    changes: int
    """Number of allocations and frees that the curve summarises."""
    phases: tuple[tuple[Phase, int], ...]
    """The index in `curve` at which each phase begins."""
    peak: int
    peak_phase: Phase
    peak_module: int
    """Index of the module whose operation caused the peak, -1 outside of any known module."""
    holdings: tuple[Holding, ...]
    """The holders of the bytes at the peak, largest first; the last one is `other`."""
    highest: tuple[int | None, ...]
    """By module: the highest total while it ran, forward or backward; None if it did not run."""
    whole: bool
    """False if the step made more allocations than the profiler records."""
    backward_of_models: int | None = None
    """The highest total in backward from when it reached a known module on; None if it reached none."""
    backward_of_loss: int | None = None
    """The highest total in backward before that."""
    at_peak: tuple[int, ...] = ()
    """By module: the bytes that it holds at the peak itself, without its submodules; empty in old recordings."""
    blocks: int | None = None
    """The highest total of the CUDA allocator's blocks, each rounded up to 512 bytes; None on the CPU."""
    in_blocks: StepPeaks | None = None
    """The peaks of the phases in these blocks; None on the CPU, and in old recordings."""
    optimizer_scratch: int = 0
    """`StepPeaks.scratch`."""


@dataclass(frozen=True, slots=True)
class ParametersClassified(Event):
    """The state of each known parameter: a letter of `vocabulary.ParameterState`, and "1" or "0" for `requires_grad`."""

    states: str
    trainable: str
    reasons: str = ""
    """A letter of `vocabulary.StateReason` per known parameter; empty if the cause is unknown for all."""


@dataclass(frozen=True, slots=True)
class OutOfMemory(Event):
    """An allocation failed, whether or not the script caught the exception; and who held the memory at that moment."""

    number: int
    """The number of this failure in the run, from 1. After the first few only some are emitted, without any bytes."""
    device: str
    """The device that was out of memory: `cpu`, `cuda:0`."""
    message: str
    """The first line of the error message of torch or Python; empty if there was no message yet."""
    requested: int | None
    """Requested bytes, None if unknown."""
    phase: Phase
    module: str | None
    """Path of the innermost module whose forward, or whose operation's backward, was running; "" for a model's root, None if
    there was none or it is unknown."""
    categories: tuple[tuple[str, int], ...]
    """(memory category, bytes) on that type of device, each storage once; empty if the probe measured none."""
    total: int | None
    """Bytes that the allocator had allocated; the part that no category explains is *other*."""
    largest: tuple[HeldStorage, ...]
    whole: bool
    """False if the search ran out of time: the categories are lower bounds then."""
    file: str | None
    """The file with the out-of-memory report; None if it was not written."""
    trouble: str | None
    """Why the file was not written, in words."""
