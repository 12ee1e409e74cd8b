"""The words of a run: phases, memory categories, parameter states, and the plain descriptions of models and optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(str, Enum):
    """What the training thread is doing. Every moment of a run belongs to exactly one phase."""

    LOAD = "load"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    ZERO_GRAD = "zero_grad"
    EVAL = "eval"
    OTHER = "other"

    __str__ = str.__str__
    # Enum's own hash is a Python function, which the phase tracker would call a dozen times a step.
    __hash__ = str.__hash__


class ParameterState(str, Enum):
    """What autograd and the optimizer do with a parameter; the value is the letter shown in the tree."""

    TRAINED = "T"
    ZERO = "Z"
    UNREACHED = "U"
    FLOW_THROUGH = "F"
    CUT = "C"
    ORPHAN = "O"
    MOVED = "M"
    NOT_FINITE = "N"
    SKIPPED = "S"
    UNKNOWN = "-"

    __str__ = str.__str__


STATE_NAMES: dict[ParameterState, str] = {
    ParameterState.TRAINED: "trained",
    ParameterState.ZERO: "zero gradient",
    ParameterState.UNREACHED: "unreached",
    ParameterState.FLOW_THROUGH: "frozen (flow-through)",
    ParameterState.CUT: "frozen (cut)",
    ParameterState.ORPHAN: "orphan",
    ParameterState.MOVED: "moved while frozen",
    ParameterState.NOT_FINITE: "not finite",
    ParameterState.SKIPPED: "skipped",
    ParameterState.UNKNOWN: "unknown",
}


class StateReason(str, Enum):
    """Why a parameter is in its state, where the probe saw the cause; the value is a letter."""

    NONE = "-"
    """No cause was seen beyond what the state itself says."""
    CLEARED = "c"
    """Unreached: `.grad` was set when backward ended and None when the optimizer stepped."""
    NOT_CALLED = "n"
    """Unknown: the module that holds this frozen parameter was not called, so its use leaves no trace in the graph."""
    HIDDEN = "h"
    """Unknown: one operation of the graph stands for the code of several modules."""
    ZERO_GRADIENT = "z"
    """Moved: an optimizer step with a gradient of zeros; optimizer state such as momentum, and any weight decay, move the
    parameter."""
    DECAY = "d"
    """Moved: an optimizer step with a gradient of zeros and no optimizer state; weight decay moves the parameter."""
    STALE_GRADIENT = "s"
    """Moved: an optimizer step with a gradient from before the freeze."""
    NO_GRADIENT = "o"
    """Moved: an optimizer step without a gradient."""
    OUTSIDE_STEP = "w"
    """Moved: a write outside of any optimizer step."""

    __str__ = str.__str__


class Reach(str, Enum):
    """How far backward comes with a module: its own operations and those of its children together."""

    THROUGH = "p"
    """Backward runs through it, and on to something before it."""
    ENDS = "e"
    """Backward runs in it and ends at parameters of its own."""
    NOT_ENTERED = "-"
    """It ran, and backward never enters it."""
    NOT_RUN = " "
    """It was not called, and nothing of it was used."""
    UNKNOWN = "?"
    """What it did is hidden in an operation that stands for several modules' code."""

    __str__ = str.__str__


ENTERED = Reach.THROUGH.value + Reach.ENDS.value
"""The letters of the modules that backward enters."""


class GradMode(str, Enum):
    """Whether autograd recorded a module's operations: PyTorch's own three modes and reentrant checkpoints, by a letter."""

    GRAD = "g"
    NO_GRAD = "n"
    INFERENCE = "i"
    NOT_CHECKPOINTED = "r"
    """Under the no_grad of a reentrant checkpoint no input of which requires a gradient: backward never runs it again."""
    NOT_RUN = " "
    UNKNOWN = "?"

    __str__ = str.__str__


PROBLEM_STATES = frozenset(
    {
        ParameterState.ZERO,
        ParameterState.UNREACHED,
        ParameterState.ORPHAN,
        ParameterState.MOVED,
        ParameterState.NOT_FINITE,
        ParameterState.SKIPPED,
    }
)
"""The states a person should look at; `jump to next problem` stops at them."""


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Bytes held at one moment, each storage counted once: in the first category of `MEMORY_CATEGORIES` that claims it.

    `other` is `total` minus every known category, and may be negative where a category is an estimate; both are None
    where the machine has no way to measure a total.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    activations: int | None
    other: int | None
    total: int | None
    input: int | None = 0
    """Batches: what a training model or a DataLoader was given or gave in the step that is looked at and is still alive,
    whole storages, as far as autograd does not keep them too. None where nobody looked."""
    offloaded: int = 0
    """What `torch.autograd.graph.save_on_cpu` keeps on the host for backward; and where the models' home is a device, also
    parameters, gradients and optimizer state that live on the host (an optimizer's step counters excepted)."""
    offload_outside: bool = False
    """The models' home is a device: what is offloaded is in the host's memory, and no part of `total`."""

    def within_total(self) -> dict[str, int | None]:
        """The categories that add up to `total`, in the order they are drawn; None for one that is not known."""
        names = (name for name in MEMORY_CATEGORIES if name != "offloaded" or not self.offload_outside)
        return {name: getattr(self, name) for name in names}


MAX_WAYS = 1_000_000
"""Ways of a gradient through a graph are counted up to here: residual connections make them double at each."""

MEMORY_CATEGORIES = (
    "parameters", "buffers", "gradients", "optimizer_state", "activations", "input", "offloaded", "other",
)  # fmt: skip
"""What bytes are counted as, in the order that a storage is claimed in and that categories are drawn in."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes that tensors of one kind hold in one module: a memory category, or `temporaries` of backward and optimizer."""

    kind: str
    module: int
    """Place in the tree, -1 outside of any known module, or in several that hold little."""
    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True)
class HeldStorage:
    """Storages of one size that the same owner holds; `bytes` is what one of them takes."""

    owner: str
    """In words: a parameter's path, `gradient of …`, `saved for backward in …`, `not known`."""
    category: str
    bytes: int
    shape: tuple[int, ...]
    """Of the tensor it was seen through, like `dtype`."""
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter tensor. `names` holds every path it is reachable by (more than one where weights are tied)."""

    path: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int
    module: int
    """Index of the owning module in the tree."""
    local_count: int | None = None
    """Elements that this process holds of a tensor that is spread over several (a DTensor): norms are of these alone, since
    the whole would take a collective. None for any other tensor."""
    same_storage: tuple[str, ...] = ()
    """Paths of other parameters (other objects, not other names) that use the same memory."""


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """One buffer: a tensor of a module that is no parameter. Buffers of one module stand together, in the order of modules."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int
    module: int
    """Index of the owning module in the tree."""
    persistent: bool
    """Whether `state_dict` has it."""


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """One module, in depth-first order.

    The parameters of a module's subtree are contiguous: its own come first, then its children's, so
    `parameters[first_parameter : first_parameter + subtree_parameters]` is the subtree.
    """

    path: str
    name: str
    type_name: str
    depth: int
    parent: int
    """Index of the parent module, -1 for the root of a model."""
    first_parameter: int
    own_parameters: int
    subtree_parameters: int
    subtree_modules: int
    """How many modules the subtree has, this one included: modules `index : index + subtree_modules`."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A root module that is being trained or called."""

    name: str
    type_name: str
    root: int
    """Index of its root module."""
    number: int = 0
    """The same for as long as the root module lives, whatever else is found; no other model of the run has it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Parameters that a command made trainable, or froze; by path, which outlives the tree that places belong to."""

    trainable: bool
    paths: tuple[str, ...]
    statistics: tuple[str, ...] = ()
    """Paths of the modules whose running statistics are held still from now on, or no longer."""
    joined: tuple[tuple[str, int, int], ...] = ()
    """Which of them joined an optimizer: path, place of the optimizer among the live ones, place of its group."""


@dataclass(frozen=True, slots=True)
class ExtendedOptimizer:
    """An optimizer to which commands have added parameters, by path; `own` counts the script's own."""

    type_name: str
    own: int
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OptimizerInfo:
    """An optimizer and which of the known parameters it owns (indices into the tree's parameters)."""

    type_name: str
    groups: int
    parameters: tuple[int, ...]
    unknown_parameters: int
    """Parameters it owns that belong to no known module."""
    group_of: tuple[int, ...] = ()
    """Aligned with `parameters`: the place of the group each is in."""
    freed: bool = False
    """The optimizer no longer exists; the numbers are those of its last description."""
    sharing: int = 1
    """How many optimizers have had this place, one after the other; more than one only where a script makes very many."""


@dataclass(frozen=True, slots=True)
class GradientStats:
    """What a gradient looked like as it was applied, and what the step did to its parameter.

    `mean` and `std` (of the whole population) are over the elements that the gradient stores: all of them, unless it is sparse.
    """

    parameter: int
    """Its place in the tree."""
    max_abs: float
    mean: float
    std: float
    zero_fraction: float
    """Share of all elements that are exactly zero, 0 to 1."""
    not_finite: int
    """How many elements are NaN or infinite."""
    weight_norm: float
    """L2 norm of the parameter before the step."""
    update_ratio: float | None
    """L2 norm of what the step added over that of the parameter; None where that was zero, or not seen before the step."""
    ratio_is_exact: bool
    """False if the ratio is that of a sample of the elements."""
    elements: int | None = None
    """What `zero_fraction` is a share of, each part of a complex number for itself; None: the parameter's elements."""
    stored: int | None = None
    """How many of them the gradient stores; None: all."""


Setting = float | bool | tuple[float, ...]
"""A number, a switch, or several numbers such as Adam's `betas`."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a parameter group is set to; None where the optimizer has no such setting, or it lies on a device."""

    learning_rate: float | None
    weight_decay: float | None
    further: tuple[tuple[str, Setting], ...] = ()
    """The other settings by the optimizer's own names: `momentum`, `betas`, `nesterov`."""


@dataclass(frozen=True, slots=True)
class GradientHop:
    """Operations of one module that follow each other on a gradient's way from the loss."""

    module: int
    """Place in the tree, -1 outside of any known module."""
    operations: int
    names: tuple[str, ...]
    """What autograd calls the first few different ones, in the order of backward."""
    hidden: bool = False
    """One of them stands for the code of several modules: a compiled region, a reentrant checkpoint."""


@dataclass(frozen=True, slots=True)
class UnregisteredModule:
    """A module that runs inside a model without being registered with it. Parameters are counted by their elements."""

    caller: str
    """Path of the module that calls it, or the model's name where that is the root."""
    type_name: str
    model: str | None
    """What it is called where it is shown as a model by itself; None where it is not shown."""
    parameters: int
    """Of those that the caller's model does not have as well."""
    trainable: int
    in_optimizer: int
    with_gradient: int
    """Parameters whose `.grad` was not None after the step."""
