"""The terms of a run: phases, memory categories, parameter states, and plain descriptions of models and optimizers."""

from __future__ import annotations

from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.script_lines import ScriptLine


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
    # Enum's own hash is a Python function, which the phase tracker would call a dozen times per step.
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
    ParameterState.TRAINED: "trains",
    ParameterState.ZERO: "zero",
    ParameterState.UNREACHED: "unreached",
    ParameterState.FLOW_THROUGH: "passes",
    ParameterState.CUT: "off",
    ParameterState.ORPHAN: "no optimizer",
    ParameterState.MOVED: "moved!",
    ParameterState.NOT_FINITE: "NaN/Inf",
    ParameterState.SKIPPED: "skipped",
    ParameterState.UNKNOWN: "unknown",
}
"""The word for each state, on the screen, in texts and in exported data."""


class StateReason(str, Enum):
    """Why a parameter is in its state, if the probe knows the cause; the value is a letter."""

    NONE = "-"
    """No cause is known beyond the state itself."""
    CLEARED = "c"
    """Unreached: `.grad` was set when backward ended and None when the optimizer stepped."""
    NOT_CALLED = "n"
    """Unknown: the module that holds this frozen parameter was not called, so its use leaves no trace in the graph."""
    NOT_USED = "u"
    """Cut: the module that holds this frozen parameter was not called. No operation within the module calls of the newest step
    whose operations were recorded read the parameter."""
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
    """How far backward reaches into a module: its own operations and those of its children together."""

    THROUGH = "p"
    """Backward runs through the module, and on to operations before it."""
    ENDS = "e"
    """Backward runs in the module and ends at its own parameters."""
    NOT_ENTERED = "-"
    """The module ran, and backward never enters it."""
    NOT_RUN = " "
    """The module was not called, and nothing of it was used."""
    SHARED = "s"
    """The module has no parameters and several callers: its operations count as theirs."""
    UNKNOWN = "?"
    """The module's operations are hidden in an operation that stands for the code of several modules."""

    __str__ = str.__str__


ENTERED = Reach.THROUGH.value + Reach.ENDS.value
"""The letters of the modules that backward enters."""


class GradMode(str, Enum):
    """Whether autograd recorded a module's operations: a letter for PyTorch's three grad modes and reentrant checkpoints."""

    GRAD = "g"
    NO_GRAD = "n"
    INFERENCE = "i"
    NOT_CHECKPOINTED = "r"
    """Under the no_grad of a reentrant checkpoint none of whose inputs requires a gradient: backward never recomputes it."""
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
"""The states that need the user's attention; `jump to next problem` stops at them."""

STATES_BY_URGENCY = (
    ParameterState.NOT_FINITE, ParameterState.MOVED, ParameterState.ORPHAN, ParameterState.UNREACHED, ParameterState.ZERO,
    ParameterState.SKIPPED, ParameterState.TRAINED, ParameterState.FLOW_THROUGH, ParameterState.CUT, ParameterState.UNKNOWN,
)  # fmt: skip
"""The states in the order in which several are named: those that need attention first."""


@dataclass(frozen=True, slots=True)
class HeldStep:
    """The step of an optimizer before which the run is held: the gradients are there, and the weights as before the step."""

    optimizer: int
    """The optimizer's index in `OptimizersFound`."""
    name: str
    """Its class."""
    no_skip: str = ""
    """Why the step cannot be skipped, in words; empty if it can."""
    line: ScriptLine | None = None
    """The line of the script that calls the step."""


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Bytes held at one moment, each storage counted once: in the first category of `MEMORY_CATEGORIES` that claims it.

    `other` is `total` minus every known category, and may be negative where a category is an estimate. Both are None
    where the machine cannot measure a total.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    activations: int | None
    other: int | None
    total: int | None
    input: int | None = 0
    """Batches: the inputs of a training model and the batches of a DataLoader, of the sampled step, that are still alive.
    Whole storages count, unless autograd keeps them too. None if not measured."""
    offloaded: int = 0
    """Bytes that `torch.autograd.graph.save_on_cpu` keeps on the host for backward. If the models are on a device, also the
    parameters, gradients and optimizer state on the host (except an optimizer's step counters)."""
    offload_outside: bool = False
    """The models are on a device: the offloaded bytes are in host memory, and no part of `total`."""
    buckets: int = 0
    """Bytes of the buckets in which `DistributedDataParallel` averages gradients: a second copy of them. 0 where the gradients
    are views of the buckets, which then count as gradients."""

    def within_total(self) -> dict[str, int | None]:
        """Return the categories that add up to `total`, in drawing order; None for an unknown one."""
        names = (name for name in MEMORY_CATEGORIES if name != "offloaded" or not self.offload_outside)
        return {name: getattr(self, name) for name in names}


MAX_PATHS = 1_000_000
"""Upper limit for counting the paths of a gradient through a graph: each residual connection doubles their number."""

MEMORY_CATEGORIES = (
    "parameters", "buffers", "gradients", "buckets", "optimizer_state", "activations", "input", "offloaded", "other",
)  # fmt: skip
"""The memory categories. A storage counts in the first one that claims it; the categories are also drawn in this order."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of the tensors of one kind in one module: a memory category, or `temporaries` of backward and optimizer."""

    kind: str
    module: int
    """Index of the module; -1 outside of any known module, or for several modules that hold little."""
    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True)
class HeldStorage:
    """Storages of one size with the same owner; `bytes` is the size of one of them."""

    owner: str
    """In words: a parameter's path, `gradient of …`, `saved for backward in …`, `not known`."""
    category: str
    bytes: int
    shape: tuple[int, ...]
    """The shape of the tensor through which the probe found the storage; so is `dtype`."""
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter tensor. `names` holds all of its paths (more than one where weights are tied)."""

    path: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int
    module: int
    """Index of the owning module in the tree."""
    local_count: int | None = None
    """Elements that this process holds of a tensor spread over several processes (a DTensor). Norms cover only these, since a
    norm of the whole tensor would need a collective. None for any other tensor."""
    same_storage: tuple[str, ...] = ()
    """Paths of other parameters (other objects, not other names) that use the same memory."""
    device: int | None = None
    """Torch's index of the CUDA device on which it was when it was listed; None on any other device."""


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """One buffer: a tensor of a module that is no parameter. Buffers are listed module by module, in the order of modules."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int
    module: int
    """Index of the owning module in the tree."""
    persistent: bool
    """Whether `state_dict` contains it."""


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
    """Number of modules in the subtree, this one included: modules `index : index + subtree_modules`."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A root module that is being trained or called."""

    name: str
    type_name: str
    root: int
    """Index of its root module."""
    number: int = 0
    """Identifies the model in the run. It stays the same as long as the root module lives, through all later listings."""


@dataclass(frozen=True, slots=True)
class ExtendedOptimizer:
    """An optimizer to which commands have added parameters (paths); `own` counts the script's own parameters."""

    type_name: str
    own: int
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OptimizerInfo:
    """An optimizer and the known parameters that it owns (indexes into the tree's parameters)."""

    type_name: str
    groups: int
    parameters: tuple[int, ...]
    unknown_parameters: int
    """Parameters it owns that belong to no known module."""
    group_of: tuple[int, ...] = ()
    """Aligned with `parameters`: the index of each parameter's group."""
    freed: bool = False
    """The optimizer no longer exists; the numbers are those of its last description."""
    sharing: int = 1
    """How many optimizers have had this index, one after the other; more than one only if a script creates very many."""
    groups_of: int = -1
    """Index of an optimizer before it that has the same parameter groups: one of the two is a wrapper of the other. -1 if none
    has."""


@dataclass(frozen=True, slots=True)
class GradientStats:
    """Statistics of a gradient as it was applied, and of what the step did to its parameter.

    `mean` and `std` (of the whole population) are over the elements that the gradient stores: all of them, unless it is sparse.
    """

    parameter: int
    """Index of the parameter."""
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
    """L2 norm of the step's update divided by that of the parameter; None where that was zero, or not read before the step."""
    ratio_is_exact: bool
    """False if the ratio is that of a sample of the elements."""
    elements: int | None = None
    """The number of elements that `zero_fraction` is a share of; real and imaginary parts count separately. None: the
    parameter's elements."""
    stored: int | None = None
    """Number of elements that the gradient stores; None: all."""


Setting = float | bool | tuple[float, ...]
"""A number, a switch, or several numbers such as Adam's `betas`."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a parameter group; None where the optimizer has no such setting, or its value is on a device."""

    learning_rate: float | None
    weight_decay: float | None
    further: tuple[tuple[str, Setting], ...] = ()
    """The other settings by the optimizer's own names: `momentum`, `betas`, `nesterov`."""
    name: str = ""
    """What the script calls the group: its `name`."""


@dataclass(frozen=True, slots=True)
class GradientHop:
    """Consecutive operations of one module on the path of a gradient from the loss."""

    module: int
    """Index of the module, -1 outside of any known module."""
    operations: int
    names: tuple[str, ...]
    """Autograd's names of the first few different ones, in the order of backward."""
    hidden: bool = False
    """One of them stands for the code of several modules: a compiled region, a reentrant checkpoint."""


@dataclass(frozen=True, slots=True)
class UnregisteredModule:
    """A module that runs inside a model without being registered with it. Counts of parameters are counts of elements."""

    caller: str
    """Path of the module that calls it, or the model's name where that is the root."""
    type_name: str
    model: str | None
    """Its name if it is shown as a model of its own; None if it is not shown."""
    parameters: int
    """Elements of its parameters that the caller's model does not have as well."""
    trainable: int
    in_optimizer: int
    with_gradient: int
    """Elements of the parameters whose `.grad` was not None after the step."""
