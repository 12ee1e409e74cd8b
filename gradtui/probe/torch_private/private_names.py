"""Use names that torch does not promise to keep; each has a fallback that shows less instead of failing.

Names are looked up, and versions never compared. The docstring beside each name says what gradtui relies on it for.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # not in its __all__

from gradtui.probe.torch_private import unshown_tensors
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.module_walk import parameters_of
from gradtui.probe.torch_private.own_hooks import accumulation_hooks, has_hooks
from gradtui.probe.torch_private.unshown_tensors import saved
from gradtui.system.own_frames import is_of_script

GraphNode = Any
"""A node of the autograd graph: `grad_fn` of a tensor, or an entry of `next_functions`."""


current_graph_task_id: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
"""Returns the id of the backward pass that the calling thread works for, -1 outside of one.

It also holds on the engine's device threads, so it distinguishes a recomputed forward from a real one where a flag could
not.
"""

sequence_number: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)
"""Returns the number that the next autograd node created on this thread will get; 0 where torch does not report it."""


_dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
_tracing: Callable[[], object | None] = getattr(torch._C, "_get_tracing_state", lambda: None)
_profiling: Callable[[], bool] = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)


def modes_are_active() -> bool:
    """Return whether a mode, tracer or profiler might observe an operation on the CPU. A default device is a mode too."""
    return _dispatch_modes() > 0 or _function_modes() > 0 or _profiling() or _tracing() is not None


def is_being_traced() -> bool:
    """Return whether `torch.jit.trace` is recording: it would even record that a tensor's shape was read."""
    return _tracing() is not None


def operations_are_observed() -> bool:
    """Return whether a mode, tracer, profiler or graph capture of the script would observe gradtui's tensor operations.

    A default device is a mode too, but it only adds that device to the factories of tensors.
    """
    if _dispatch_modes() > 0 or (_function_modes() > 0 and not _are_default_devices()):
        return True
    if _profiling() or is_being_traced():
        return True
    return torch.cuda.is_initialized() and is_capturing()


def _are_default_devices() -> bool:
    """Return whether all active function modes are `torch.set_default_device` or `with torch.device(...)`."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes: list[object] = _get_current_function_mode_stack()
    return all(isinstance(mode, DeviceContext) for mode in modes)


set_grad_enabled: Callable[[bool], object] = getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled)
"""Switches whether autograd records operations on this thread. `torch.no_grad()` takes ten times as long as two calls."""

no_torch_function: Callable[[], AbstractContextManager[object]] = getattr(torch._C, "DisableTorchFunction", nullcontext)
"""Within this context no access to a tensor, not even to its shape, calls the `__torch_function__` of a subclass or of a
mode."""

no_torch_dispatch: Callable[[], AbstractContextManager[object]] = getattr(
    torch._C, "_DisableTorchDispatch", nullcontext
)
"""Within this context no operation calls the `__torch_dispatch__` of a subclass or of a mode."""


def backward_owner() -> tuple[Any, str]:
    """Return where to wrap the one call that every backward goes through, as (namespace, name).

    `torch.autograd.backward` and `torch.autograd.grad` both resolve `_engine_run_backward` in `torch.autograd` when they
    are called, so wrapping it there also covers `from torch.autograd import backward`. Without it, `backward` alone is
    wrapped.
    """
    if hasattr(torch.autograd, "_engine_run_backward"):
        return torch.autograd, "_engine_run_backward"
    return torch.autograd, "backward"


def is_plain_module_call(function: Callable[..., Any]) -> bool:
    """Return whether this `nn.Module.__call__` is torch's own.

    That one only chooses between `_compiled_call_impl` and `_call_impl`.
    """
    module = torch.nn.Module
    known = hasattr(module, "_compiled_call_impl") and hasattr(module, "_call_impl")
    return known and function is getattr(module, "_wrapped_call_impl", None)


_ACCUMULATE: type | None = getattr(getattr(torch._C, "_functions", None), "AccumulateGrad", None)


def leaf_of(node: GraphNode) -> torch.Tensor | None:
    """Return the tensor that this node accumulates a gradient into; None for the node of an operation.

    The class is tested first: a custom Function may have set an attribute of the same name on its own node.
    """
    if _ACCUMULATE is not None and type(node) is not _ACCUMULATE:
        return None
    leaf: torch.Tensor | None = getattr(node, "variable", None)
    return leaf


def number_of(node: GraphNode) -> int:
    """Return the node's number. That of an operation is higher than those of all operations whose results it takes."""
    number: int = node._sequence_nr()
    return number


def sizes_of_result(node: GraphNode) -> tuple[int, ...]:
    """Return the sizes of the one result of a node's operation; empty where they are unknown."""
    made: Any = getattr(node, "_input_metadata", ())
    sizes = tuple(made[0].shape) if len(made) == 1 else ()
    return sizes if all(type(each) is int for each in sizes) else ()


_HIDING = ("CompiledFunction", "CheckpointFunction", "DifferentiableGraph")
_hides: dict[type, bool] = {}


def hides_modules(node: GraphNode) -> bool:
    """Return whether this node stands for the code of several modules: a compiled region or a reentrant checkpoint."""
    kind = type(node)
    hides = _hides.get(kind)
    if hides is None:
        if kind.__name__ == "CppFunction":
            # All nodes that C++ extensions and TorchScript define have one Python class: only their names differ.
            return any(part in node.name() for part in _HIDING)
        hides = _hides[kind] = any(part in kind.__name__ for part in _HIDING)
    return hides


_saved_names: dict[type, tuple[str, ...]] = {}


def saved_tensors(node: GraphNode, *, of_this_thread: bool = False) -> list[Any]:
    """Return the SavedTensor objects of a node, not unpacked: reading `_saved_x` itself would re-run a checkpointed forward.

    `of_this_thread`: the node was made on the calling thread.
    """
    kind = type(node)
    names = _saved_names.get(kind)
    if names is None:
        names = _saved_names[kind] = tuple(name for name in dir(node) if name.startswith("_raw_saved_"))
    found: list[Any] = []
    for name in names:
        value = getattr(node, name) if unshown_tensors.ARE_SHOWN else saved(node, name, of_this_thread=of_this_thread)
        if isinstance(value, (tuple, list)):
            found.extend(value)
        else:
            found.append(value)
    return found


def saved_data(shown: Any) -> torch.Tensor | None:
    """Return the tensor in a SavedTensor without running any hook; None where it is hooked, freed or not readable."""
    if getattr(shown, "unpack_hook", True) is not None:
        return None
    data: torch.Tensor | None = shown.data
    return data


_STEP_WRAPPER: CodeType = torch.optim.Optimizer.profile_hook_step(lambda self: None).__code__


def optimizer_steps_on_stack(of: torch.optim.Optimizer | None = None) -> int:
    """Return how many `Optimizer.step` calls are running on this thread: all, or those `of` one optimizer.

    Step post-hooks do not run when a step raises, so a count of hooks alone could stay wrong for good.
    """
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _STEP_WRAPPER:
            count += of is None or frame.f_locals["args"][0] is of
        frame = frame.f_back
    return count


def version_of(tensor: torch.Tensor) -> int:
    """Return the counter that every in-place write to a tensor raises, an optimizer's too. Autograd checks the same."""
    return tensor._version


def are_untouched(tensors: list[weakref.ref[torch.Tensor]], versions: list[int | None]) -> bool:
    """Return whether all living tensors require no gradient and have these versions (None: any).

    It is one loop, since it runs at every step.
    """
    for reference, version in zip(tensors, versions):
        tensor = reference()
        if tensor is not None and (tensor.requires_grad or (tensor._version != version and version is not None)):
            return False
    return True


def shares_version(tensor: torch.Tensor) -> bool:
    """Return whether a write to another tensor may raise this one's counter, as for a view of a larger storage.

    `nn.Parameter(flat[:n])` is such a view: it shares its counter with every other part of `flat`.
    """
    if type(tensor) not in (torch.nn.Parameter, torch.Tensor) or tensor.layout is not torch.strided:
        return False
    return tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()


def storage_key(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's storage, the same for all its views."""
    key: int = tensor.untyped_storage()._cdata
    return key


def span_of(tensor: torch.Tensor) -> range:
    """Return the bytes of a strided tensor's storage from its first element to the end of its last one."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    first, width = int(tensor.storage_offset()), tensor.element_size()
    return range(first * width, (first + last + 1) * width) if tensor.numel() else range(0)


def overlap(one: range, other: range) -> bool:
    """Return whether two spans have bytes in common."""
    return max(one.start, other.start) < min(one.stop, other.stop)


def compiled_module(module: torch.nn.Module) -> torch.nn.Module | None:
    """Return the module that `torch.compile` has wrapped in this one; None if this is no such wrapper."""
    # Tested without importing dynamo, which takes most of a second: without it there are no such wrappers.
    kind = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    return module._modules.get("_orig_mod") if kind is not None and isinstance(module, kind) else None


def is_compiled_graph(module: torch.nn.Module) -> bool:
    """Return whether dynamo made this module from a compiled function, as `OutputGraph.compile_subgraph` does.

    The graph of a compiled optimizer step holds the parameters of the model, and dynamo's cache keeps it alive.
    """
    return "compile_subgraph_reason" in vars(module)


def compiled_in_place(module: torch.nn.Module) -> bool:
    """Return whether `module.compile()` has been called, so that the module's calls run compiled code."""
    return getattr(module, "_compiled_call_impl", None) is not None


def has_accumulation_hooks(tensor: torch.Tensor) -> bool:
    """Return whether hooks of the script run when backward has stored a gradient. One may be an optimizer's step."""
    return accumulation_hooks(tensor, own=False)


def has_gradient_hooks(tensor: torch.Tensor) -> bool:
    """Return whether hooks run on the gradient of a leaf before backward stores it, or after that."""
    return bool(getattr(tensor, "_backward_hooks", None)) or has_accumulation_hooks(tensor)


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return `.grad`, without the warning of torch for a tensor that is no leaf: a parameter written with a gradient."""
    return tensor.grad if tensor.is_leaf else None


def is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether this is a lazy module's parameter that has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether gradtui may read the values of a tensor.

    Those on the device "meta" and those of a `FakeTensorMode` have only shapes. Operations on others call the script: its class
    has a `__torch_dispatch__`, which may print or draw random numbers.
    """
    # Not imported: without that module there are none.
    kind = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
    if tensor.is_meta or (kind is not None and isinstance(tensor, kind)):
        return False
    dispatch = type(tensor).__torch_dispatch__
    return dispatch is torch.Tensor.__torch_dispatch__ or not _runs_script(dispatch)


def _runs_script(function: object) -> bool:
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)  # type: ignore[arg-type]
    return code is not None and is_of_script(code.co_filename)


def with_values(tensors: list[tuple[int, torch.Tensor]]) -> list[tuple[int, torch.Tensor]]:
    """Return those of (index, tensor) pairs that have values. It runs at every step, and calls nothing for plain tensors."""
    return [each for each in tensors if not each[1].is_meta and (type(each[1]) is torch.Tensor or has_values(each[1]))]


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Return whether this tensor only wraps other tensors that hold the bytes (DTensor, quantized ones)."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def number_in_backward() -> int | None:
    """Return the number of the graph node that is running on this thread; None outside of a backward."""
    node = running_node()
    return number_of(node) if node is not None else None


running_node: Callable[[], GraphNode | None] = getattr(torch._C, "_current_autograd_node", lambda: None)
"""Returns the graph node that is running on this thread; None outside of a backward."""


def has_stand_ins(module: torch.nn.Module) -> bool:
    """Return whether other tensors replace this module's parameters now, as in `torch.func.functional_call`."""
    first = next(parameters_of(module), None)
    return first is not None and is_stand_in(first, module)


def is_stand_in(parameter: torch.Tensor, module: torch.nn.Module | None) -> bool:
    """Return whether another tensor replaces a parameter of this module.

    A module from `torch.jit.load` has plain tensors for parameters, and `torch.func.functional_call` takes none.
    """
    return not (isinstance(parameter, torch.nn.Parameter) or isinstance(module, torch.jit.ScriptModule))


def multi_tensor_norms(tensors: list[torch.Tensor], dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Return the L2 norm of each tensor, in as few kernels as there are devices and dtypes. Gradient clipping does so too."""
    if dtype is None:
        return list(torch._foreach_norm(tensors, 2))
    return list(torch._foreach_norm(tensors, 2, dtype=dtype))


def loss_scale(scaler: Any) -> torch.Tensor | None:
    """Return the factor by which a GradScaler multiplies losses, as a tensor on its device; None before its first use."""
    scale: torch.Tensor | None = getattr(scaler, "_scale", None)
    return scale


OTHER_IN_EVAL = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
"""Modules of torch that compute something else in eval mode, and return the same kind of value."""


def forget_step(scaler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Make a GradScaler forget that it has unscaled the gradients of an optimizer since its last `update`."""
    getattr(scaler, "_per_optimizer_states", {}).pop(id(optimizer), None)


def found_inf(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """Return the number by which a fused optimizer decides to skip its step: not zero if a gradient is not finite.

    GradScaler sets `found_inf` on an optimizer that unscales by itself, while its step runs. None where it is not set.
    """
    found = getattr(optimizer, "found_inf", None)
    return found if isinstance(found, torch.Tensor) and found.numel() == 1 else None


def has_other_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether hooks other than gradtui's run around the step of this optimizer; True where torch does not say."""
    hooks = sys.modules.get("torch.optim.optimizer")
    shared = (getattr(hooks, f"_global_optimizer_{when}_hooks", None) for when in ("pre", "post"))
    own = (getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post"))
    # One of each kind that all optimizers share is gradtui's.
    if any(each is None or len(each) > 1 for each in shared):
        return True
    return any(each is None or has_hooks(each, own=False) for each in own)
