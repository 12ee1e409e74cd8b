"""Which optimizer owns a parameter, and how one that none owns joins an optimizer without breaking anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.module_tree import ModuleTree


def parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """Every parameter an optimizer owns."""
    for group in optimizer.param_groups:
        yield from group["params"]


def owned(tensor: torch.Tensor, optimizers: Sequence[Optimizer]) -> bool:
    """Whether any of the optimizers owns this tensor."""
    return any(own is tensor for optimizer in optimizers for own in parameters(optimizer))


def join(orphans: Mapping[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer]) -> str | None:
    """Append parameters to the group of their nearest sibling and return that optimizer's name; None without optimizers.

    An existing group is extended, because `add_param_group` breaks LR schedulers that counted the groups when they were
    made (LambdaLR, OneCycleLR, SequentialLR and others compare lengths strictly).
    """
    groups = [(optimizer, group) for optimizer in optimizers for group in optimizer.param_groups]
    if not groups:
        return None
    ranked = [(optimizer, group, _paths(group, tree)) for optimizer, group in groups]
    names: dict[str, None] = {}
    for index, tensor in orphans.items():
        path = tree.parameters[index].path
        optimizer, group, _ = max(ranked, key=lambda entry: _kinship(path, entry[2]))
        group["params"].append(tensor)
        if "param_names" in group:
            group["param_names"].append(path)
        names[type(optimizer).__name__] = None
    return " and ".join(names)


def _paths(group: Mapping[str, Any], tree: ModuleTree) -> list[str]:
    places = (tree.owns(tensor) for tensor in group["params"])
    return [tree.parameters[place].path for place in places if place is not None]


def _kinship(path: str, members: list[str]) -> tuple[int, int]:
    """How close a group is to a parameter: path components shared with its nearest member, then how many it knows."""
    parts = path.split(".")
    nearest = -1
    for member in members:
        shared = 0
        for ours, theirs in zip(parts, member.split(".")):
            if ours != theirs:
                break
            shared += 1
        nearest = max(nearest, shared)
    return nearest, len(members)
