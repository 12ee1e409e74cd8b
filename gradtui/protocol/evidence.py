"""Facts that the probe looks for because a rule needs them."""

from __future__ import annotations

from dataclasses import dataclass

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
    """A model had the values of another one before a step, or the script writes to it although no optimizer has it."""

    model: int
    """Its number."""
