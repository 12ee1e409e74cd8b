"""What autograd keeps for backward, as its own hooks tell."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def packed_bytes(model: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Return the bytes that autograd packs in one forward, each storage once, parameters and buffers left out."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    storages: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = loss()
    total = sum(storages.values())
    result.backward()
    return total
