"""The only place that uses names torch does not promise to keep; each has a fallback that shows less instead of failing.

Names are looked up, never versions compared. What each is relied on for is said beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

GraphNode = Any
"""A node of the autograd graph: `grad_fn` of a tensor, or what `next_functions` leads to."""


def _task_id_unknown() -> int:
    return -1


current_graph_task_id: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", _task_id_unknown)
"""Id of the backward pass that the calling thread works for, -1 outside of one.

True also on the engine's device threads, so it tells a recomputed forward from a real one where a flag of ours could not.
"""

_sequence_number: Callable[[], int] | None = getattr(torch._C._autograd, "_get_sequence_nr", None)
has_sequence_numbers = _sequence_number is not None


def sequence_number() -> int:
    """The number that the next autograd node made on this thread will get; 0 where torch does not tell."""
    return _sequence_number() if _sequence_number is not None else 0


def dispatch_modes_active() -> bool:
    """True while a TorchDispatchMode (a fake-tensor trace, a profiler of the script's) would see operations of ours."""
    depth: Callable[[], int] | None = getattr(torch._C, "_len_torch_dispatch_stack", None)
    return depth is not None and depth() > 0


def backward_owner() -> tuple[Any, str]:
    """Where to wrap the one call that every backward goes through, as (namespace, name).

    `torch.autograd.backward` and `torch.autograd.grad` both resolve `_engine_run_backward` in `torch.autograd` when they
    are called, so wrapping it there also covers `from torch.autograd import backward`. Without it, `backward` alone.
    """
    if hasattr(torch.autograd, "_engine_run_backward"):
        return torch.autograd, "_engine_run_backward"
    return torch.autograd, "backward"


def data_loader_iterator() -> Any | None:
    """The class whose `__next__` every DataLoader iteration goes through, None where it is gone."""
    import torch.utils.data.dataloader as dataloader

    return getattr(dataloader, "_BaseDataLoaderIter", None)


_saved_names: dict[type, tuple[str, ...]] = {}


def saved_tensors(node: GraphNode) -> list[Any]:
    """The SavedTensor objects of a node, not unpacked: reading `_saved_x` itself would re-run a checkpointed forward."""
    kind = type(node)
    names = _saved_names.get(kind)
    if names is None:
        names = _saved_names[kind] = tuple(name for name in dir(node) if name.startswith("_raw_saved_"))
    found: list[Any] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, (tuple, list)):
            found.extend(value)
        else:
            found.append(value)
    return found


def saved_data(saved: Any) -> torch.Tensor | None:
    """The tensor in a SavedTensor, without running any hook; None where it is hooked, freed or not readable."""
    if getattr(saved, "unpack_hook", True) is not None:
        return None
    data: torch.Tensor | None = saved.data
    return data


_STEP_WRAPPER: CodeType = torch.optim.Optimizer.profile_hook_step(lambda self: None).__code__


def optimizer_steps_on_stack() -> int:
    """How many `Optimizer.step` calls are running on this thread.

    Step post-hooks do not run when a step raises, so a count of hooks alone could stay wrong for good.
    """
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        count += frame.f_code is _STEP_WRAPPER
        frame = frame.f_back
    return count


def version_of(tensor: torch.Tensor) -> int:
    """The counter that every in-place write to a tensor raises, an optimizer's included; autograd checks the same one."""
    return tensor._version


def storage_key(tensor: torch.Tensor) -> int:
    """The identity of a tensor's storage, the same for all its views."""
    key: int = tensor.untyped_storage()._cdata
    return key


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether this is a lazy module's parameter that has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def living_threads() -> Container[int]:
    """Identifiers of the threads that run Python code now, those of C++ origin included."""
    return sys._current_frames()


def multi_tensor_norms(tensors: list[torch.Tensor], dtype: torch.dtype | None) -> list[torch.Tensor]:
    """The L2 norm of each tensor, in as few kernels as there are devices and dtypes; what gradient clipping uses too."""
    if dtype is None:
        return list(torch._foreach_norm(tensors, 2))
    return list(torch._foreach_norm(tensors, 2, dtype=dtype))


def leave_to_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have dynamo run this function as it is, without a graph break in the code of the script's that calls it."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def loss_scale(scaler: Any) -> torch.Tensor | None:
    """The factor a GradScaler multiplies losses by, as a tensor on its device; None before its first use."""
    scale: torch.Tensor | None = getattr(scaler, "_scale", None)
    return scale
