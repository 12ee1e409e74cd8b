"""Tensors on the device "meta", and functions for operations that have no other implementation there. Any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from gradtui.protocol.operations import RecordedTensor, TensorNumber, TorchConstant

META = torch.device("meta")


def empty_like(recorded: RecordedTensor) -> torch.Tensor:
    """Return a tensor without data of the recorded shape, stride and dtype."""
    return torch.empty_strided(recorded.shape, recorded.stride, dtype=dtype_of(recorded), device=META)


def dtype_of(recorded: RecordedTensor) -> torch.dtype:
    """Return the dtype of a recorded tensor."""
    found: torch.dtype = getattr(torch, recorded.dtype)
    return found


def dependent(empty: torch.Tensor, arguments: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return `empty`, through which a gradient passes to the arguments if one of them requires it; nothing is saved."""
    return _Dependence.apply(empty, *arguments) if any(each.requires_grad for each in arguments) else empty  # type: ignore[no-untyped-call]


def tensors_in(result: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the result of an operation."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for each in result:
            yield from tensors_in(each)


def argument_of(value: Any, tensor: Callable[[int], torch.Tensor]) -> Any:
    """Return an argument of an operation as torch takes it; `tensor` returns the tensor of a number."""
    if isinstance(value, TensorNumber):
        return tensor(value.number)
    if isinstance(value, TorchConstant):
        return META if value.name == "device" else getattr(torch, value.name)
    if isinstance(value, tuple):
        return [argument_of(each, tensor) for each in value]
    return value


@cache
def function_of(name: str) -> Any:
    """Return the operation of a name such as `aten.addmm.default`."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def run_backward(loss: torch.Tensor) -> None:
    """Run backward from a scalar, past the wrappers of `torch.autograd.backward`."""
    engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001
    gradient = (torch.empty_like(loss),)
    engine.run_backward((loss,), gradient, False, False, (), allow_unreachable=True, accumulate_grad=True)


class _Dependence(torch.autograd.Function):
    """A result that depends on tensors, and for which autograd saves nothing."""

    @staticmethod
    def forward(ctx: Any, empty: torch.Tensor, *arguments: torch.Tensor) -> torch.Tensor:
        """Return `empty` as a result of the arguments."""
        ctx.like = [(each.shape, each.dtype, each.requires_grad) for each in arguments]
        return empty

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Return gradients of the arguments."""
        gradients = (
            torch.empty(shape, dtype=dtype, device=META) if needs else None for shape, dtype, needs in ctx.like
        )
        return None, *gradients
