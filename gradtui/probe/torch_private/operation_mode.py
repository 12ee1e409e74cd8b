"""Provide a dispatch mode that receives every tensor operation of a thread and can be left safely.

All private names for such modes are in this file. `torch.utils._python_dispatch` is private by name but public in practice:
PyTorch's own documentation tells users to import it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd.graph import increment_version
from torch.overrides import has_torch_function
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode, _push_mode

from gradtui.probe.torch_private import subclasses_below_modes as subclasses
from gradtui.probe.torch_private.dynamo_frames import leave_frame_to_python


class OperationMode(TorchDispatchMode):
    """A dispatch mode that can be entered and left safely.

    Subclasses define `__torch_dispatch__(self, func, types, args, kwargs)` and return the result of `func(*args,
    **kwargs)`.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]  # not annotated in torch
        # Below a graph break dynamo would compile the frames of a mode, and warn of what it cannot trace in them.
        if (dispatch := vars(cls).get("__torch_dispatch__")) is not None:
            cls.__torch_dispatch__ = leave_frame_to_python(dispatch, and_all_it_calls=True)  # type: ignore[method-assign]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # not annotated in torch
        self.is_on = False
        """Whether the mode is entered."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first operation would import dynamo into the script's process, which takes a second.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that a compiled region stays compiled, and is one operation."""
        return True

    def enter(self) -> None:
        """Receive the operations of this thread from here on."""
        if not self.is_on:
            subclasses.allow(self)
            self.__enter__()  # type: ignore[no-untyped-call]  # not annotated in torch
            self.is_on = True

    def leave(self) -> bool:
        """Receive no more operations.

        Returns False, and changes nothing, if the script has pushed a mode of its own on top and not popped it.
        """
        if not self.is_on:
            return True
        if _get_current_dispatch_mode() is not self:
            return False
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # not annotated in torch
        self.is_on = False
        subclasses.restore(self)
        return True

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Receive the operations of this thread within the context, and leave the flags of the process as they are.

        `enter` sets flags that code compiled by torch.compile reads on any thread, and `leave` resets them. Two threads that
        enter and leave in turns would leave wrong flags behind.
        """
        subclasses.allow(self)
        _push_mode(self)
        try:
            yield
        finally:
            _pop_mode()
            subclasses.restore(self)


def below_operator_call(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback from a mode's `__torch_dispatch__` that is below the frame calling the operator."""
    below = trace.tb_next if trace is not None else None
    while below is not None and below.tb_frame.f_code in _OPERATOR_CALLS:
        below = below.tb_next
    return below


_LISTS = frozenset((list, tuple))
_OPERATOR_CALLS = {
    call.__code__ for kind in (OpOverload, OpOverloadPacket) if (call := kind.__call__) and hasattr(call, "__code__")
}


def asks_a_subclass(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """Return whether an operation with these arguments would call a `__torch_function__` of the script."""
    given = (*args, *kwargs.values()) if kwargs else args
    if has_torch_function(given):
        return True
    for each in given:  # noqa: SIM110 - `any` would add a frame to each operation
        if type(each) in _LISTS and has_torch_function(each):
            return True
    return False


def writes_tensors_of_a_list(func: Any) -> bool:
    """Return whether this operation changes all tensors of a list in place: `aten::_foreach_mul_`."""
    try:
        return "_foreach_" in func.name() and bool(func._schema.is_mutable)  # noqa: SLF001
    except AttributeError:
        return False


@contextmanager
def counting_writes(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Raise the version counters of these tensors if the operation within the context does not.

    On the CPU such an operation calls one in-place operation for each tensor, and these raise the counters. Below a mode they
    do not (torch 2.13). Autograd's check of in-place changes relies on them, and so does gradtui.
    """
    before = _versions(tensors)
    yield
    for tensor, version, now in zip(tensors, before, _versions(tensors)):
        if now == version:
            increment_version(tensor)


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the version counters; nothing where one of the tensors has none (inference mode)."""
    try:
        return [tensor._version for tensor in tensors]  # noqa: SLF001
    except RuntimeError:
        return []


def backward_is_compiled() -> bool:
    """Return whether compiled autograd is on: it compiles the hooks on a graph together with the graph."""
    return bool(getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "compiled_autograd_enabled", False))


def something_is_compiled() -> bool:
    """Return whether dynamo has compiled anything so far: a mode would make it fall back or recompile."""
    counters: dict[str, Any] = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    # With fullgraph=True no frames are counted, only graphs.
    return bool(counters.get("frames") or counters.get("stats"))
