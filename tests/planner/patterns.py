"""Ways to choose what trains in a model, and what autograd keeps for each, counted by hooks on saved tensors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


def patterns(model: nn.Module) -> dict[str, frozenset[int]]:
    """Return ten choices of the parameters that train, by index. Those without a gradient of their own are left out."""
    parameters = list(model.parameters())
    count, chance = len(parameters), random.Random(0)
    chosen = {
        "all": range(count),
        "second half": range(count // 2, count),
        "first half": range(count // 2),
        "last two": range(max(0, count - 2), count),
        "first": range(1),
        "vectors": [index for index, each in enumerate(parameters) if each.dim() == 1],
        "matrices": [index for index, each in enumerate(parameters) if each.dim() > 1],
        "every other one": range(0, count, 2),
        "a third": [index for index in range(count) if chance.random() < 0.33],
        "two thirds": [index for index in range(count) if chance.random() < 0.67],
    }
    return {
        name: frozenset(
            index for index in indices if parameters[index].is_floating_point() or parameters[index].is_complex()
        )
        for name, indices in chosen.items()
    }


def kept(model: nn.Module, trains: frozenset[int], loss: Callable[[], Any]) -> tuple[int, frozenset[int]] | None:
    """Return the bytes that autograd keeps for a loss, and the parameters that get a gradient; None if nothing trains.

    The flags are set as a script would set them that trains nothing else.
    """
    parameters: Sequence[Tensor] = list(model.parameters())
    for index, parameter in enumerate(parameters):
        parameter.requires_grad_(index in trains)
        parameter.grad = None
    known = {each.untyped_storage().data_ptr() for each in (*parameters, *model.buffers())}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        value = loss()
    if not value.requires_grad:
        return None
    size = sum(storages.values())
    value.backward()
    return size, frozenset(index for index, each in enumerate(parameters) if each.grad is not None)
