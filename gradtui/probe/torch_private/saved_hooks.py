"""Read what torch's own hooks on saved tensors keep, those of `save_on_cpu` and `torch.utils.checkpoint`.

It uses names that torch does not promise to keep. A hooked `SavedTensor` holds in `data` what its pack hook has returned.
The functions read it and run no hook. Where a name is missing they report nothing, and gradtui checkpoints nothing. Any thread.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from inspect import signature
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing

from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.dynamo_frames import what_compiles
from gradtui.probe.torch_private.private_names import current_graph_task_id, is_being_traced, saved_data, saved_tensors
from gradtui.probe.torch_private.unshown_tensors import KNOWS_HOOKS, hooks_are_in_force, unpack_hook_in_force

_OFFLOADING = "save_on_cpu."
_CHECKPOINTING = "_checkpoint_hook."

_SMALLER = {torch.float64: torch.float16, torch.int64: torch.int8, torch.complex128: torch.complex64}


@cache
def _smaller(large: torch.dtype) -> torch.Tensor | None:
    # Not made at the import: a profiler of the script may run then.
    small = _SMALLER.get(large)
    return torch.zeros((), dtype=small, device="cpu") if small is not None else None


def is_number(tensor: torch.Tensor) -> bool:
    """Return whether this is a Python number of the script that autograd has converted to a tensor, as in `x * 0.5`.

    Hooks on saved tensors never receive those few bytes. A number adopts the dtype of any tensor, which a tensor that the
    script has made does not (torch's rules of type promotion).
    """
    smaller = _smaller(tensor.dtype) if tensor.dim() == 0 and tensor.device.type == "cpu" else None
    return smaller is not None and torch.result_type(tensor, smaller) != tensor.dtype


def copy_on_host(saved: Any) -> torch.Tensor | None:
    """Return the copy that `torch.autograd.graph.save_on_cpu` keeps instead of a saved tensor; None for another hook.

    Its pack hook returns (the tensor's device, a copy in the host's memory). For a CPU tensor that is a copy with
    `pin_memory`, else the tensor itself.
    """
    name = getattr(getattr(saved, "unpack_hook", None), "__qualname__", "")
    if not name.startswith(_OFFLOADING):
        return None
    packed = getattr(saved, "data", None)
    copy = packed[-1] if isinstance(packed, tuple) and packed else None
    return copy if isinstance(copy, torch.Tensor) else None


def checkpointing_of(
    again: Callable[..., Any], tensors: Sequence[torch.Tensor], contexts: Callable[[], tuple[Any, Any]]
) -> AbstractContextManager[object]:
    """Return a context in which autograd saves no tensors, and for which backward calls `again(*tensors)` instead.

    It does what `torch.utils.checkpoint.checkpoint` does around its call of a function (not reentrant, with `contexts` as
    its `context_fn`), without frames of torch between the caller and the code within.
    """
    before: list[Any] = [again, True, contexts, "default", False]
    within: AbstractContextManager[object] = _checkpointing(*before, *_STOPS_EARLY, *tensors)
    return within


_generator = getattr(checkpointing, "_checkpoint_without_reentrant_generator", None)
can_checkpoint = _generator is not None
"""Whether `checkpointing_of` works in this version of torch."""
_checkpointing: Any = contextmanager(_generator) if _generator is not None else None
_STOPS_EARLY = [True] if _generator is not None and "early_stop" in signature(_generator).parameters else []


_hooks_are_allowed: Callable[[], bool] | None = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
_transforms: Callable[[], Any] | None = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)

HAS_CHECKPOINT_STATE = KNOWS_HOOKS and _hooks_are_allowed is not None and _transforms is not None
"""Whether this version of torch has the functions that `may_checkpoint` calls."""


def may_checkpoint() -> bool:
    """Return whether a call that begins now, on this thread, may be checkpointed.

    It may not without autograd recording (nothing is saved), nor under hooks on saved tensors: the script's own checkpoint
    or offloading, or a checkpointed module around this one. A recomputed region must save the same tensors in the same
    order as the first time. The same hooks are active then, so that the answer is the same. It may not within backward
    either, where a reentrant checkpoint recomputes its region.
    """
    if not torch.is_grad_enabled() or current_graph_task_id() != -1:
        return False
    if _hooks_are_allowed is None or _transforms is None or not KNOWS_HOOKS:
        return False
    if not _hooks_are_allowed() or hooks_are_in_force() or _transforms() is not None:
        return False
    if is_being_traced() or what_compiles():
        return False
    return not is_capturing()


_own_hooks: weakref.WeakSet[Any] = weakref.WeakSet()


def mark_own_region() -> None:
    """Remember that gradtui checkpoints the region that has begun last on this thread."""
    hook = unpack_hook_in_force()
    if hook is not None:
        _own_hooks.add(hook)


def is_own_region(hook: object) -> bool:
    """Return whether an unpack hook is that of a region that gradtui checkpoints."""
    return hook in _own_hooks


def checkpoint_frame(saved: Any) -> Any | None:
    """Return the non-reentrant checkpointed region that will recompute a saved tensor; None if there is none.

    Its unpack hook is a closure around the region's frame, which is identified by its attribute `weak_holders`.
    """
    hook = getattr(saved, "unpack_hook", None)
    if not getattr(hook, "__qualname__", "").startswith(_CHECKPOINTING):
        return None
    values = (cell.cell_contents for cell in getattr(hook, "__closure__", None) or ())
    return next((value for value in values if hasattr(value, "weak_holders")), None)


def kept_by_frame(frame: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that a checkpointed region keeps: its function's arguments, however they are passed.

    Newer releases list them in `saved_args`. Older ones have a node that saves them, after an empty tensor of torch's own, and
    that keeps the other arguments in its `get_args`. Keyword arguments and those of a `functools.partial` are in that closure,
    or in that of the function that recomputes the region.
    """
    saved, node = getattr(frame, "saved_args", None), getattr(getattr(frame, "input_saver", None), "grad_fn", None)
    if saved is None:
        saved = saved_tensors(node) if node is not None else ()
    for value in saved:
        tensor = value if isinstance(value, torch.Tensor) else saved_data(value) if hasattr(value, "data") else None
        if tensor is not None and tensor.numel():
            yield tensor
    for function in (getattr(frame, "recompute_fn", None), getattr(node, "get_args", None)):
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        closed_over = dict(zip(names, getattr(function, "__closure__", None) or ()))
        for name in ("fn", "kwargs", "args"):
            if name in closed_over:
                yield from _among_arguments(closed_over[name].cell_contents)


def _among_arguments(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, partial):
        yield from _among_arguments(value.func)
        yield from _among_arguments((*value.args, *value.keywords.values()))
    elif isinstance(value, dict):
        yield from _among_arguments(tuple(dict.values(value)))
    elif isinstance(value, (tuple, list)):
        for part in tuple(value):
            yield from _among_arguments(part)


def holder_of(saved: Any) -> object | None:
    """Return the object that a checkpointed region holds in place of a saved tensor."""
    holder: object | None = getattr(saved, "data", None)
    return holder


def next_holder(frame: Any, group: Any) -> object | None:
    """Return the holder for the next tensor that a region being recomputed saves, in the order of its forward."""
    counter, holders = getattr(frame, "recomp_counter", None), getattr(frame, "weak_holders", ())
    index = counter.get(group, 0) if counter is not None else len(holders)
    return holders[index]() if index < len(holders) else None


def recomputation_hook() -> Any | None:
    """Return the class that hooks the tensors saved while a region is recomputed, None where it is missing.

    Its constructor takes (a weak reference to the frame, the group), and its pack hook is `pack_hook`.
    """
    return getattr(checkpointing, "_recomputation_hook", None)


def recomputed_function(frame: Any) -> tuple[object | None, bool]:
    """Return the function that a non-reentrant checkpointed region runs, and whether torch restores random numbers for it.

    Both are in the closure of the function that recomputes the region. Where a name is missing, they count as restored.
    """
    function = getattr(frame, "recompute_fn", None)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    closed_over = dict(zip(names, getattr(function, "__closure__", None) or ()))
    values = {name: closed_over[name].cell_contents for name in ("fn", "preserve_rng_state") if name in closed_over}
    return values.get("fn"), values.get("preserve_rng_state") is not False


def reentrant_function() -> tuple[object | None, bool]:
    """Return the same for the reentrant checkpoint whose backward this thread runs; (None, True) where it runs none."""
    code = getattr(getattr(getattr(checkpointing, "CheckpointFunction", None), "backward", None), "__code__", None)
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None or code is None:
            break
        if frame.f_code is code:
            context = frame.f_locals.get("ctx")
            return getattr(context, "run_function", None), getattr(context, "preserve_rng_state", True) is not False
        frame = frame.f_back
    return None, True


def is_last_holder(frame: Any, group: Any) -> bool:
    """Return whether the next tensor that a region being recomputed saves is its last one."""
    counter, holders = getattr(frame, "recomp_counter", None), getattr(frame, "weak_holders", ())
    return counter is not None and counter.get(group, 0) + 1 == len(holders)


_FRAMES = 40
"""More frames than there are between a module's call and the reentrant checkpoint around it."""


def reentrant_needs_gradient() -> bool | None:
    """Return whether an input of the reentrant checkpoint that this thread runs requires a gradient.

    None where the thread runs none. The checkpoint is found by the frame of its forward. Without such an input autograd
    records nothing, and torch warns of that.
    """
    code = getattr(getattr(getattr(checkpointing, "CheckpointFunction", None), "forward", None), "__code__", None)
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None or code is None:
            break
        if frame.f_code is code:
            return any(getattr(frame.f_locals.get("ctx"), "needs_input_grad", ()))
        frame = frame.f_back
    return None


def is_reentrant_checkpoint(node: Any) -> bool:
    """Return whether this node is a whole region of a reentrant checkpoint."""
    return type(node).__name__.startswith("CheckpointFunction")
