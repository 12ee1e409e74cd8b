"""Compute norms of sparse gradients with repeated indices (`nn.Embedding(sparse=True)`) without waiting for a device.

`coalesce` sums the values of equal indices, and waits for the device to learn how many distinct indices there are. Not yet
confirmed on a device.
"""

from __future__ import annotations

import torch

from gradtui.probe.memory import PIECE_BYTES


def would_wait(gradient: torch.Tensor) -> bool:
    """Return whether coalescing this tensor would wait for a device."""
    return gradient.layout is torch.sparse_coo and not gradient.is_coalesced() and gradient.device.type != "cpu"


def norm_of_repeated(gradient: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of a sparse tensor whose indices may repeat. The host knows every size, so nothing waits."""
    indices, values = gradient._indices(), gradient._values()  # noqa: SLF001 - the public names want a coalesced tensor
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    count = values.shape[0]
    if not values.numel():
        return values.new_zeros(())
    rows = _number_of_each(indices, gradient.shape[: indices.shape[0]])
    columns = values.reshape(count, -1)
    width = max(1, PIECE_BYTES // (count * values.element_size()))
    norms = [
        torch.linalg.vector_norm(torch.zeros_like(piece).index_add_(0, rows, piece))
        for piece in torch.split(columns, width, dim=1)
    ]
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def _number_of_each(indices: torch.Tensor, sizes: torch.Size) -> torch.Tensor:
    """Return a number for each column of `indices`, from 0: equal columns have equal numbers."""
    flat = indices[0]
    for dimension, size in enumerate(sizes[1:], start=1):
        flat = flat * size + indices[dimension]
    in_order, order = flat.sort()
    numbers = torch.zeros_like(in_order)
    numbers[1:] = (in_order[1:] != in_order[:-1]).cumsum(0)
    return torch.empty_like(numbers).scatter_(0, order, numbers)
