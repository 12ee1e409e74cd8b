"""Which part of the models holds most of the saved bytes, and why autograd keeps them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.state.frontier import called
from gradtui.state.run_state import TreeState
from gradtui.state.selectors import kept_for, saved_bytes, subtree
from gradtui.text import size_text

_LEAST = 1 << 20
"""Bytes. Less than this is no reason for a line."""


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


def most_saved_words(tree: TreeState) -> str | None:
    """That part with its bytes, and the reason why autograd keeps them; None where no part holds most, or all is little."""
    index = most_saved(tree)
    if index is None or tree.saved is None or tree.saved.total < _LEAST:
        return None
    size, total = size_text(saved_bytes(tree, index) or 0), size_text(tree.saved.total)
    held = f"{called(tree, index)} holds {size} of the {total} saved for backward"
    return f"{held}{_why(tree, index)}"


def _why(tree: TreeState, index: int) -> str:
    upstream = kept_for(tree, index)
    through = f"the gradient of {tree.parameters[upstream].path} passes through it" if upstream is not None else ""
    where = subtree(tree.modules[index])
    if is_frozen(tree, index):
        return f": it is frozen, but {through}" if through else ": it is frozen"
    if not where:
        return f": {through}" if through else ""
    if "1" not in tree.trainable[where.start : where.stop]:
        return f": {through}" if through else ""
    own = ": its own parameters need gradients"
    return f"{own}, and {through}" if through else own


def _children(tree: TreeState, index: int) -> Iterator[int]:
    child, end = index + 1, index + tree.modules[index].subtree_modules
    while child < end:
        yield child
        child += tree.modules[child].subtree_modules
