"""Find copies of a model that the script holds and never calls, such as the average of its weights (EMA). Training thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

from gradtui.probe.model import ModuleTree, held_objects
from gradtui.probe.torch_private.private_names import is_lazy


def held_averages(tree: ModuleTree) -> Iterator[tuple[str, nn.Module]]:
    """Yield modules that are in no listed model and have parameters of the same shapes as one, with the script's name of each.

    `torch.optim.swa_utils.AveragedModel` is one, and a deep copy of a model another.
    """
    roots = [root for model in tree.models if (root := tree.module_refs[model.root]()) is not None]
    wanted = [shapes for root in roots if (shapes := _shapes(root))]
    seen = {id(module) for root in roots for module in root.modules()}
    for held in held_objects(tree, of_modules=False):
        if not issubclass(type(held.value), nn.Module) or id(held.value) in seen:
            continue
        # What is in a module that was found belongs to it. A module around a listed one has that one's tensors.
        inside = {id(module) for module in held.value.modules()}
        is_apart = seen.isdisjoint(inside)
        seen |= inside
        if is_apart and _shapes(held.value) in wanted:
            yield held.name, held.value


def _shapes(module: nn.Module) -> Counter[torch.Size]:
    return Counter(each.shape for each in module.parameters() if not is_lazy(each))
