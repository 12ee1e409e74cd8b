"""Find parameters that are different objects over the same memory, as `load_state_dict(assign=True)` makes of tied ones.

Reads no tensor values, and keeps nothing alive. Training thread.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gradtui.probe.torch_private.private_names import storage_key

_Key = tuple[int, int, int]


def groups(parameters: Iterable[tuple[int, torch.Tensor]]) -> list[tuple[int, ...]]:
    """Return groups of two or more indexes of parameters that use the same elements of one storage."""
    found: dict[_Key, int | list[int]] = {}
    several: list[list[int]] = []
    for index, tensor in parameters:
        key = memory_of(tensor)
        if key is None:
            continue
        known = found.setdefault(key, index)
        if isinstance(known, list):
            known.append(index)
        elif known != index:
            found[key] = both = [known, index]
            several.append(both)
    return [tuple(indices) for indices in several]


def memory_of(tensor: torch.Tensor) -> _Key | None:
    """Return the storage of a parameter and its elements in it; None for a tensor without memory of its own."""
    # A subclass (DTensor, a fake tensor, a parameter of a lazy module) may stand for other tensors, or for none.
    if type(tensor) is not nn.Parameter or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return None
    return storage_key(tensor), int(tensor.storage_offset()), tensor.numel()
