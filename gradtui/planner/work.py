"""Estimate the work of a step, to say whether another step is faster or slower. Any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.planner.meta_tensors import tensors_in
from gradtui.probe.autograd import Flops, flops_of

_PER_BYTE = 10
"""Floating-point operations that take as long as one byte that is read or written: between 5 and 10 on cores of CPUs, and 20 to
100 on GPUs in single precision (their peak rates divided by the bandwidth of their memory). An estimate."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of operations in floating-point operations."""

    forward: int = 0
    backward: int = 0
    again: int = 0
    """What backward computes again."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.forward + self.backward + self.again

    def plus(self, other: Work) -> Work:
        """Return the work of both."""
        return Work(self.forward + other.forward, self.backward + other.backward, self.again + other.again)

    def times(self, factor: float | Fraction) -> Work:
        """Return a multiple of the work."""
        return Work(*(round(each * factor) for each in (self.forward, self.backward, self.again)))


_PER_OPERATION, _RECORDED = 25_000, 8_000
"""Floating-point operations that take as long as an operation that computes nothing, and as autograd's record of one: together
some 3 µs on a core of 10 per nanosecond."""


def work_of(function: Any, arguments: Sequence[Any], result: Any, *, records: bool, again: bool) -> Work:
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
        return Work()
    passes = any(each.requires_grad for each in returned)
    size = sum(each.nbytes for each in (*taken, *returned)) * _PER_BYTE
    products = flops_of(function, arguments, result, records=records) or Flops(0, 0)
    needed = [each for each in taken if each.requires_grad] if records else []
    # The gradient of a bias or a scale is summed over what it was added to or multiplied with.
    summed = sum(each.nbytes for each in returned) * sum(each.dim() <= 1 for each in needed) * _PER_BYTE
    forward = products.forward + size + _PER_OPERATION + _RECORDED * passes
    # A product and a sum for a scalar.
    count = max(1, len(needed) + sum(each.dim() == 0 for each in needed))
    backward = products.backward + (size + summed + _PER_OPERATION * count) * passes
    return Work(forward, backward, forward if again and passes else 0)


def _tensors_of(arguments: Iterable[Any]) -> Iterable[torch.Tensor]:
    for each in arguments:
        yield from tensors_in(each)


def _is_view(taken: Sequence[torch.Tensor], returned: Sequence[torch.Tensor]) -> bool:
    storages = {each.untyped_storage()._cdata for each in taken}  # noqa: SLF001 - the identity of a storage
    return all(each.untyped_storage()._cdata in storages for each in returned)  # noqa: SLF001
