"""What stands behind torch's own hooks on saved tensors, by names that torch does not promise to keep: `save_on_cpu` and
`torch.utils.checkpoint`.

A hooked `SavedTensor` holds in `data` what its pack hook has returned; it is looked at, and no hook is run. Where a name is
missing nothing is said. Any thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from inspect import signature
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing

from gradtui.probe.torch_private.private_names import saved_data, saved_tensors

_OFFLOADING = "save_on_cpu."
_CHECKPOINTING = "_checkpoint_hook."

_SMALLER = {
    large: torch.zeros((), dtype=small, device="cpu")
    for large, small in (
        (torch.float64, torch.float16), (torch.int64, torch.int8), (torch.complex128, torch.complex64)
    )
}  # fmt: skip


def is_number(tensor: torch.Tensor) -> bool:
    """Whether this is a Python number of the script's that autograd has made a tensor of, as in `x * 0.5`.

    Those few bytes are never shown to hooks on saved tensors. A number gives way to the type of any tensor, which one
    that the script has made as a tensor does not (torch's rules of type promotion).
    """
    smaller = _SMALLER.get(tensor.dtype) if tensor.dim() == 0 and tensor.device.type == "cpu" else None
    return smaller is not None and torch.result_type(tensor, smaller) != tensor.dtype


def copy_on_host(saved: Any) -> torch.Tensor | None:
    """The copy that `torch.autograd.graph.save_on_cpu` keeps instead of a saved tensor; None if that is not its hook.

    Its pack hook returns (the tensor's device, a copy in the host's memory). For a tensor of the CPU that is a copy with
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
    """Keep nothing of what autograd saves within this, and call `again(*tensors)` in backward instead.

    It is what `torch.utils.checkpoint.checkpoint` does around its call of a function (not reentrant, with `contexts` as its
    `context_fn`), without frames of torch's between the caller and what runs within.
    """
    before: list[Any] = [again, True, contexts, "default", False]
    within: AbstractContextManager[object] = _checkpointing(*before, *_STOPS_EARLY, *tensors)
    return within


_generator = getattr(checkpointing, "_checkpoint_without_reentrant_generator", None)
can_checkpoint = _generator is not None
"""Whether there is a `checkpointing_of`."""
_checkpointing: Any = contextmanager(_generator) if _generator is not None else None
_STOPS_EARLY = [True] if _generator is not None and "early_stop" in signature(_generator).parameters else []


def checkpoint_frame(saved: Any) -> Any | None:
    """The checkpointed region (not a reentrant one) that a saved tensor will be computed again by; None if there is none.

    Its unpack hook is a closure around the frame, which is told by what it lists: `weak_holders`.
    """
    hook = getattr(saved, "unpack_hook", None)
    if not getattr(hook, "__qualname__", "").startswith(_CHECKPOINTING):
        return None
    values = (cell.cell_contents for cell in getattr(hook, "__closure__", None) or ())
    return next((value for value in values if hasattr(value, "weak_holders")), None)


def kept_by_frame(frame: Any) -> Iterator[torch.Tensor]:
    """The tensors that a checkpointed region keeps: its function's arguments, by whatever way they are passed.

    Newer releases list them in `saved_args`, older ones have a node that saves them; keyword arguments and those of a
    `functools.partial` are in the closure of the function that computes the region again.
    """
    saved = getattr(frame, "saved_args", None)
    if saved is None:
        node = getattr(getattr(frame, "input_saver", None), "grad_fn", None)
        saved = saved_tensors(node) if node is not None else ()
    for value in saved:
        tensor = value if isinstance(value, torch.Tensor) else saved_data(value) if hasattr(value, "data") else None
        if tensor is not None:
            yield tensor
    function = getattr(frame, "recompute_fn", None)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    closed_over = dict(zip(names, getattr(function, "__closure__", None) or ()))
    for name in ("fn", "kwargs"):
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
    """What a checkpointed region has in place of a saved tensor."""
    holder: object | None = getattr(saved, "data", None)
    return holder


def next_holder(frame: Any, group: Any) -> object | None:
    """In whose place the region being computed again saves its next tensor, in the order of its forward."""
    counter, holders = getattr(frame, "recomp_counter", None), getattr(frame, "weak_holders", ())
    place = counter.get(group, 0) if counter is not None else len(holders)
    return holders[place]() if place < len(holders) else None


def recomputation_hook() -> Any | None:
    """The class that hooks what is saved while a region is computed again, None where it is gone.

    It is made with (a weak reference to the frame, the group), and has its pack hook as `pack_hook`.
    """
    return getattr(checkpointing, "_recomputation_hook", None)


_FRAMES = 40
"""Between a module's call and the reentrant checkpoint around it there are fewer."""


def reentrant_needs_gradient() -> bool | None:
    """Whether an input of the reentrant checkpoint that this thread runs requires a gradient; None where it runs none.

    It is known by the frame of its forward. Without such an input autograd records nothing, and torch warns of that.
    """
    code = getattr(getattr(getattr(checkpointing, "CheckpointFunction", None), "forward", None), "__code__", None)
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to a caller's frame
    for _ in range(_FRAMES):
        if frame is None or code is None:
            break
        if frame.f_code is code:
            return any(getattr(frame.f_locals.get("ctx"), "needs_input_grad", ()))
        frame = frame.f_back
    return None


def is_reentrant_checkpoint(node: Any) -> bool:
    """Whether this node is a whole checkpointed region of the reentrant kind."""
    return type(node).__name__.startswith("CheckpointFunction")
