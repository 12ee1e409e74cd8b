"""Facts that the probe looks for because a rule needs them."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Event


@dataclass(frozen=True, slots=True)
class WeightsUntied(Event):
    """The weights of an embedding and of a linear module of one model had the same values, and differ now.

    They are different tensors in different memory.
    """

    embedding: str
    """Path of the weight of the embedding."""
    linear: str
    """Path of the weight of the linear module."""
    elements: int
    """Elements of each of them."""
    equal_step: int
    """The last sampled step that began with equal values."""


@dataclass(frozen=True, slots=True)
class OwnForwardWrites(Event):
    """Frozen parameters, and buffers of modules, whose values the forward of their own module has changed."""

    tensors: tuple[tuple[int, str], ...]
    """(index of the module, name of the tensor in it)."""


@dataclass(frozen=True, slots=True)
class RowsMasked(Event):
    """Rows of a trainable parameter had a gradient of zero in several samples, always the same ones."""

    parameter: str
    rows: int
    masked: int
    """Number of rows without a gradient."""
    samples: int
    """Samples in a row with the same rows."""
    moved: int
    """Those of them in which the optimizer's step moved rows without a gradient."""
    by_hook: bool
    """A hook is on the parameter's gradient."""
    is_deliberate: bool
    """The rows are in use, or the script has set their gradient to zero: it is no unit that is dead."""


@dataclass(frozen=True, slots=True)
class AveragedCopyCompared(Event):
    """A frozen copy of a model that trains was compared with its first sample, and so was that model."""

    copy: int
    """Index of the module."""
    source: int
    """Index of the module that trains."""
    dtype: str
    """Type of the copy's parameters."""
    since_step: int
    is_called: bool
    """The copy ran in eval mode."""
    buffers: tuple[str, ...]
    """Paths of the compared buffers within the module."""
    tensors_changed: tuple[float, float]
    """Share of the compared parameters of the copy and of the source that have changed."""
    elements_changed: tuple[float, float]
    """The same of their elements."""
    buffers_changed: tuple[float, float]
    """Share of the compared buffers of the copy and of the source that have changed."""


@dataclass(frozen=True, slots=True)
class ZeroDerivativesFound(Event):
    """Operations with a derivative of zero stand between the loss and parameters whose gradient is zeros."""

    operations: tuple[tuple[str, str, int], ...]
    """(function of torch, path of the module that called it, number of these parameters behind it)."""
    parameters: tuple[str, ...]
    """Paths of all these parameters."""


@dataclass(frozen=True, slots=True)
class UnfitLossInputs(Event):
    """A loss gets values of another kind than it expects, such as probabilities in place of logits."""

    operations: tuple[tuple[str, str, str], ...]
    """(what computed the input, the loss, path of the module that computed the input)."""


@dataclass(frozen=True, slots=True)
class AxesMixed(Event):
    """Views give activations the sizes of a permutation, and take their elements in the order of memory."""

    views: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...]
    """(sizes before, sizes after, path of the module that calls it)."""


@dataclass(frozen=True, slots=True)
class CheckpointAlive(Event):
    """Tensors that `torch.load` has made, with the shapes and types of most of a model's parameters, are alive.

    No model and no optimizer has them.
    """

    tensors: int
    """Their number; 0 once they are freed."""
    bytes: int
    holder: str | None
    """The global variable of the script that holds them, if one does."""


@dataclass(frozen=True, slots=True)
class UnregisteredTensor:
    """A tensor that gets a gradient in each sampled step, keeps its values, and is in no optimizer and in no listed model."""

    holder: str | None
    """What holds it or a result of it, as the script reaches that: `2.gate`; None if nothing was found."""
    of_module: bool
    """Whether the holder is an attribute of a listed module."""
    operation: str | None
    """The operation whose result the holder has (`ToCopyBackward0`); None if it holds the tensor itself."""
    is_parameter: bool
    """Whether it is an `nn.Parameter`."""
    is_joined: bool
    """Whether an operation outside of modules takes what comes of it together with what parameters of the models led to."""
    elements: int
    since_step: int
    """The first sampled step in which it got a gradient."""


@dataclass(frozen=True, slots=True)
class UnregisteredTensorsFound(Event):
    """All such tensors that are known now: the first ones."""

    tensors: tuple[UnregisteredTensor, ...]


@dataclass(frozen=True, slots=True)
class RecomputationDiffers(Event):
    """Checkpoints of the script whose recomputation does not do what forward did, of all sampled steps so far."""

    regions: tuple[str, ...]
    """Those that draw other random numbers than forward, by the module or function that they run."""
    random_modules: tuple[str, ...]
    """Paths of the dropout modules in them that are in train mode."""
    rewritten: tuple[str, ...]
    """Paths of the modules whose buffers the recomputation writes a second time."""
    norms: int
    """Number of those that are normalizations with running statistics."""


@dataclass(frozen=True, slots=True)
class PlainFlag:
    """A flag that torch does not read: `requires_grad` of a module, or a misspelt name."""

    name: str
    value: bool
    module: int
    """Index of the module that has it; -1 if a parameter has it."""
    parameter: int
    """Index of the parameter that has it; -1 if a module has it."""
    is_set_by_class: bool = False
    """Whether the code of the module's class assigns it."""


@dataclass(frozen=True, slots=True)
class FlagsFound(Event):
    """The plain flags that listed modules and parameters have now."""

    flags: tuple[PlainFlag, ...]


@dataclass(frozen=True, slots=True)
class KeptTensors:
    """Tensors whose number or size has grown in each of several searches."""

    holder: str
    """The variable or attribute whose value has them: `features`, `2.cache`; empty where gradients with graphs hold them."""
    of_module: bool
    """Whether it is an attribute of a listed module."""
    tensors: int
    bytes: int
    with_graph: int
    """Number of those that have a graph."""
    per_step: float
    """New tensors per step between the last two searches; 0 where one tensor grows."""
    bytes_per_step: float
    """New bytes per step between them."""
    since_step: int
    """The step of the first of these searches."""


@dataclass(frozen=True, slots=True)
class KeptTensorsFound(Event):
    """All holders whose tensors grow in number, while bytes grow that are in no category."""

    kept: tuple[KeptTensors, ...]


@dataclass(frozen=True, slots=True)
class GraphRetained(Event):
    """The last backward of a sampled step retained its graph, which was alive when the next forward began."""

    steps: int
    """Such steps so far."""
    bytes: int
    """What the graph has saved."""


@dataclass(frozen=True, slots=True)
class GraphHolderFound(Event):
    """What holds the graphs that are alive since some step (`GraphsAlive.since_step`)."""

    holder: str
    of_module: bool
    forwards: int
    """About how many forwards are in the graphs of the tensors that it has."""
    bytes: int
    """What these graphs keep of `GraphsAlive.bytes`."""
    since_step: int


@dataclass(frozen=True, slots=True)
class OptimizerStateUnused(Event):
    """Optimizers have state for frozen parameters to which no step has written since `since_step`."""

    parameters: tuple[str, ...]
    """Paths of these parameters: the first ones."""
    tensors: int
    """Number of all of them; 0 once there are none."""
    bytes: int
    """Bytes of their state."""
    since_step: int
    device_bytes: int = 0
    """Bytes of this state that can be offloaded to host memory."""


@dataclass(frozen=True, slots=True)
class InputGradientUnused(Event):
    """Backward computed gradients only for inputs that were freed after the step, in modules without a parameter upstream."""

    modules: tuple[str, ...]
    """Paths of these modules: the first ones."""
    module_count: int
    """Number of all of them."""
    bytes: int
    """What autograd kept for that alone."""
    saved: int
    """What autograd kept in all."""


@dataclass(frozen=True, slots=True)
class UnlistedTensorsTrain(Event):
    """Tensors of an optimizer that are in no module get new gradients: they are no parameters that were replaced."""

    optimizer: int
    """Index of the optimizer."""
    tensors: int
    """Their number."""


@dataclass(frozen=True, slots=True)
class ModelCopied(Event):
    """A model had the values of another one before a step, or the script writes to it although no optimizer has it.

    A backward has run through it and another model."""

    model: int
    """Its number."""
