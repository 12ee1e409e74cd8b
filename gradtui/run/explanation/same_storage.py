"""Parameter objects that use the same memory. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.state.tree_state import TreeState


@dataclass(frozen=True)
class SameStorage:
    """Parameters over the same memory."""

    paths: tuple[str, ...]
    stepped: int
    """How many of them train and are in an optimizer: so many times a step updates the memory."""
    is_of_several_models: bool


def same_storage(tree: TreeState, index: int, optimizers: Sequence[OptimizerInfo]) -> SameStorage | None:
    """Return which parameters use the memory of a parameter; None where no other does."""
    if not tree.parameters[index].same_storage:
        return None
    paths = (tree.parameters[index].path, *tree.parameters[index].same_storage)
    owned = {each for optimizer in optimizers for each in optimizer.parameters}
    stepped = sum(tree.parameters[each].path in paths and tree.trainable[each] == "1" for each in owned)
    ends = [model.root + tree.modules[model.root].subtree_modules for model in tree.models]
    models = {bisect_right(ends, info.module) for info in tree.parameters if info.path in paths}
    return SameStorage(paths, stepped, len(models) > 1)
