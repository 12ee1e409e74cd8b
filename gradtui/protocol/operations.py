"""The operations of one step's forward as plain data, from which the planner repeats what autograd does with them.

`gradtui.protocol.events` exports all of this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Measurement


class TensorNumber(NamedTuple):
    """A tensor among the arguments of an operation: its index in `OperationsRecorded.tensors`."""

    number: int


class TorchConstant(NamedTuple):
    """A dtype, layout or memory format among the arguments: its name in the module torch. "device" stands for any device."""

    name: str


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """A tensor that an operation took or returned. It is strided, and on any device."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    """The name of the dtype in the module torch."""
    bytes: int
    """Bytes of its storage."""
    parameter: int = -1
    """The index of the parameter that it is; -1 if it is none."""
    is_buffer: bool = False
    requires_grad: bool = False
    """Whether it is a leaf that is no parameter and requires a gradient, such as an input."""


class ModuleCall(NamedTuple):
    """One call of a module."""

    module: int
    """The index of the module, -1 if it is unknown."""
    caller: int
    """The index of the call that it was made in, -1 if it is an outermost one."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation below autograd.

    Its arguments are numbers, strings, None, `TensorNumber`, `TorchConstant`, and tuples of these.
    """

    name: str
    """As `torch.ops.aten.addmm.default` without `torch.ops.`. Empty for what happened outside of the recorded calls, or in a
    custom `torch.autograd.Function`: its results depend on its arguments, and nothing else is known."""
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[int, ...]
    """Indexes of the tensors that it returned, one after the other."""
    records: bool
    """Whether gradients were enabled."""
    module: int
    """The index of the innermost module that was running, -1 outside of the known modules."""
    call: int = -1
    """The index in `OperationsRecorded.calls` of the innermost call of a module that was running, -1 outside of all calls."""
    region: int = -1
    """The number of the region whose hooks received what autograd saved for it, as a call of `torch.utils.checkpoint` does; -1
    if autograd kept it."""


@dataclass(frozen=True, slots=True)
class OperationsRecorded(Measurement):
    """The operations of the models' forward in one step, in their order."""

    tensors: tuple[RecordedTensor, ...]
    operations: tuple[Operation, ...]
    ends: tuple[int, ...]
    """Indexes of the tensors from which the loss was computed."""
    calls: tuple[ModuleCall, ...] = ()
    """The calls of modules in which the operations ran."""
    own_regions: tuple[int, ...] = ()
    """Numbers of the regions that gradtui checkpointed."""
    missing: str = ""
    """Why the step could not be recorded, in words; then there are no operations."""
    flops: tuple[tuple[str, int], ...] = ()
    """By the dtype in which the device multiplies: the floating-point operations of all products in forward and backward of the
    step, all of its micro-steps included."""
    has_more_flops: bool = False
    """Whether there were products that could not be counted."""
    calls_of_models: int = 0
    """Calls of models by the script in the step, all of its micro-steps included."""
