"""Find the tensors with a storage of their own that a tensor consists of. Any thread."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradtui.probe.torch_private.private_names import is_lazy

PLAIN = frozenset({torch.nn.Parameter, torch.Tensor})
"""A strided tensor of exactly one of these types is its own only plain tensor. Loops over many tensors test this themselves."""


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold the bytes: wrapper subclasses (DTensor, quantized) are flattened, sparse ones split."""
    if tensor.layout is not torch.strided:
        if tensor.layout is torch.sparse_coo:
            yield tensor._values()  # noqa: SLF001 - `values()` would demand a coalesced tensor
            yield tensor._indices()  # noqa: SLF001
        return
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None and type(tensor) is not torch.nn.Parameter:
        # Not all parts of a wrapper need be tensors: a DTensor names its device mesh too.
        for inner in (getattr(tensor, name) for name in flatten()[0]):
            if isinstance(inner, torch.Tensor):
                yield from plain_tensors(inner)
        return
    if not is_lazy(tensor):
        yield tensor
