"""Let tensors of subclasses be made below a dispatch mode, which torch 2.4 refuses. Any thread.

`Tensor.as_subclass` makes an alias there, and expects that it has no Python object yet. Below a mode it has one, since the
alias passes the mode as any operation does: "the raw Tensor object is already associated to a python object". Later versions of
torch leave the modes for the alias, and so does what stands in for `as_subclass` here. Every operation on a tensor of a
subclass ends in it, unless the subclass has a `__torch_function__` that does not call torch's own.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

_NAME = "as_subclass"
_below: set[int] = set()
"""Ids of the modes that are entered."""


def allow(mode: TorchDispatchMode) -> None:
    """Let subclasses be made until `restore` is called with this mode. A torch that lets them be made is left as it is."""
    if not _are_refused():
        return
    _below.add(id(mode))
    if _NAME not in vars(torch.Tensor):
        torch.Tensor.as_subclass = _outside_of_modes(torch.Tensor.as_subclass)  # type: ignore[method-assign]


def restore(mode: TorchDispatchMode) -> None:
    """Take back what `allow` has set, once no mode is entered."""
    _below.discard(id(mode))
    if not _below and hasattr(vars(torch.Tensor).get(_NAME), "__wrapped__"):
        del torch.Tensor.as_subclass


def _outside_of_modes(original: Any) -> Any:
    @functools.wraps(original)
    def as_subclass(tensor: torch.Tensor, kind: type[torch.Tensor]) -> Any:
        with _disable_current_modes():
            return original(tensor, kind)

    return as_subclass


@functools.cache
def _are_refused() -> bool:
    class Passing(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # as for `OperationMode`: dynamo need not be imported

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Some(torch.Tensor):
        """Any subclass."""

    tensor = torch.empty(0, device="cpu")
    try:
        with Passing():  # type: ignore[no-untyped-call]  # not annotated in torch
            tensor.as_subclass(Some)
    except RuntimeError:
        return True
    return False
