"""Which part of the models holds most of the saved bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.state.run_state import TreeState
from gradtui.state.selectors import saved_bytes, subtree


def most_saved(tree: TreeState) -> int | None:
    """The smallest subtree that holds more than half of the saved bytes; None if only a model that holds all of them does.

    The search stops at a module whose parameters are all frozen: the reason is the same for all that it holds.
    """
    if tree.saved is None:
        return None
    half = tree.saved.total / 2
    roots = [model.root for model in tree.models if saved_bytes(tree, model.root)]
    found = None
    waiting = roots if len(roots) > 1 else [child for root in roots for child in _children(tree, root)]
    while found is None or not is_frozen(tree, found):
        heavy = next((index for index in waiting if (saved_bytes(tree, index) or 0) > half), None)
        if heavy is None:
            return found
        found, waiting = heavy, list(_children(tree, heavy))
    return found


def is_frozen(tree: TreeState, index: int) -> bool:
    """Return whether the subtree of a module has parameters, all of them known to be frozen."""
    where = subtree(tree.modules[index])
    return bool(where) and set(tree.trainable[where.start : where.stop]) == {"0"}


def _children(tree: TreeState, index: int) -> Iterator[int]:
    child, end = index + 1, index + tree.modules[index].subtree_modules
    while child < end:
        yield child
        child += tree.modules[child].subtree_modules
