"""Estimate the work of a step, to say whether another step is faster or slower. Any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from gradtui.planner.meta_tensors import tensors_in
from gradtui.probe.autograd import Flops, flops_of

_PER_BYTE = 10
"""Floating-point operations that take as long as one byte that is read or written: between 5 and 10 on cores of CPUs, and 20 to
100 on GPUs in single precision (their peak rates divided by the bandwidth of their memory). An estimate."""


def work_of(function: Any, arguments: Sequence[Any], result: Any, *, records: bool, again: bool) -> int:
    """Return the work of an operation in forward and backward, in floating-point operations.

    Matrix products, convolutions and attention count as `flops_of` says. All operations count for the bytes that they take and
    return, and as many again in backward if a gradient passes through them. A view takes no time.

    Args:
        function: the operation.
        arguments: its positional arguments.
        result: what it returned.
        records: whether gradients are enabled.
        again: whether backward computes it again.
    """
    taken, returned = list(_tensors_of(arguments)), list(tensors_in(result))
    if not returned or (_is_view(taken, returned) and not function._schema.is_mutable):  # noqa: SLF001
        return 0
    passes = any(each.requires_grad for each in returned)
    size = sum(each.nbytes for each in (*taken, *returned)) * _PER_BYTE
    products = flops_of(function, arguments, result, records=records) or Flops(0, 0)
    times = 1 + (again and passes)
    return products.forward * times + products.backward + size * (times + passes)


def _tensors_of(arguments: Iterable[Any]) -> Iterable[torch.Tensor]:
    for each in arguments:
        yield from tensors_in(each)


def _is_view(taken: Sequence[torch.Tensor], returned: Sequence[torch.Tensor]) -> bool:
    storages = {each.untyped_storage()._cdata for each in taken}  # noqa: SLF001 - the identity of a storage
    return all(each.untyped_storage()._cdata in storages for each in returned)  # noqa: SLF001
