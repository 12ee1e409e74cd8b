"""Read a few values of tensors, to tell whether something has written to them. Training thread only.

`tensor.data` has a version counter of its own, so a script that writes to it does not raise the counter of `tensor`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import nn

from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import operations_are_observed

_ELEMENTS = 16
"""The first elements of each tensor. Without steps between them, a view on CUDA is copied and nothing is allocated there."""
_PLAIN = (torch.Tensor, nn.Parameter)


class ValueSample:
    """The first values of some tensors at one moment. They arrive on the host later where they lie on a device."""

    def __init__(self, tensors: Iterable[torch.Tensor | None]) -> None:
        is_observed = operations_are_observed()
        self._copies: list[tuple[Callable[[], torch.Tensor | None], HostCopy | None]] = []
        for tensor in tensors:
            values = None if tensor is None or is_observed else _first_values(tensor)
            self._copies.append(
                (_none if tensor is None else weakref.ref(tensor), None if values is None else HostCopy(values))
            )

    def again(self) -> ValueSample:
        """Return the present values of those tensors that still exist."""
        return ValueSample(reference() for reference, _ in self._copies)

    @property
    def is_there(self) -> bool:
        """Whether all values are on the host."""
        return all(copy is None or copy.is_there for _, copy in self._copies)

    def differs_from(self, other: ValueSample) -> bool:
        """Return whether a tensor has other bits in `other`, which is of the same tensors. Both must be on the host."""
        pairs = zip(self._copies, other._copies)
        return any(one and two and _bits(one) != _bits(two) for (_, one), (_, two) in pairs)


def _none() -> None:
    """Stand for a weak reference to no tensor."""


def _bits(copy: HostCopy) -> list[int]:
    values: list[int] = copy.tensor().view(torch.uint8).tolist()
    return values


def _first_values(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the first values as a 1-D tensor of their own, or on CUDA as a view; None where they cannot be read safely."""
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return None
    count = min(_ELEMENTS, tensor.numel())
    # A script may have freed the memory (`resize_(0)` of the storage).
    end = (tensor.storage_offset() + count) * tensor.element_size()
    if not tensor.is_contiguous() or end > tensor.untyped_storage().nbytes():
        return None
    values = tensor.detach().view(-1)[:count]
    return values if values.is_cuda else values.clone()
