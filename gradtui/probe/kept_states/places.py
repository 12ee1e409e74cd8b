"""Where the tensors of a model are: the names that `state_dict` has for them, and what else a file must say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.module_walk import named_modules


@dataclass
class ModelPlaces:
    """One model. Tensors are named by their indexes in the copy of the run."""

    name: str
    type_name: str
    state: dict[str, int] = field(default_factory=dict)
    """By the names of `state_dict`: a tensor with several names has each of them."""
    others: dict[str, int] = field(default_factory=dict)
    """Buffers that are not persistent, and tensors that are plain attributes."""
    frozen: list[str] = field(default_factory=list)
    """Names of the parameters with `requires_grad` False."""
    in_eval: list[str] = field(default_factory=list)
    """Paths of the modules in eval mode."""


def places_of(name: str, model: nn.Module, indexes: Mapping[int, int]) -> ModelPlaces:
    """Return the places of a model. `indexes` has the index of each tensor by its `id`."""
    found = ModelPlaces(name, type(model).__name__)
    for path, module in named_modules(model, remove_duplicate=False):
        if not module.training:
            found.in_eval.append(path)
        prefix = f"{path}." if path else ""
        not_saved = module._non_persistent_buffers_set  # noqa: SLF001 - as `state_dict` does
        for kind, named in (("p", module._parameters), ("b", module._buffers), ("a", vars(module))):  # noqa: SLF001
            for key, tensor in named.items():
                if not isinstance(tensor, torch.Tensor) or (index := indexes.get(id(tensor))) is None:
                    continue
                is_saved = kind == "p" or (kind == "b" and key not in not_saved)
                (found.state if is_saved else found.others)[prefix + key] = index
                if kind == "p" and not tensor.requires_grad:
                    found.frozen.append(prefix + key)
    return found
