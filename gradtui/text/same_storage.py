"""Parameters that are different objects over the same memory, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.state.run_state import TreeState

_NAMED = 3
_MAX_LINES = 4


def same_storage_text(tree: TreeState, index: int, optimizers: Sequence[OptimizerInfo]) -> str | None:
    """What it means that others use the memory of a parameter, as a sentence without a full stop; None where none do."""
    others = tree.parameters[index].same_storage
    if not others:
        return None
    paths = [tree.parameters[index].path, *others]
    shown = ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else "")
    stepped = _stepped(tree, set(paths), optimizers)
    effect = f"an optimizer step updates it {stepped} times" if stepped > 1 else "what changes one changes the others"
    return (
        f"{shown} are {len(paths)} Parameter objects over the same memory: {effect}; assign one Parameter to tie them"
    )


def same_storage_lines(tree: TreeState, optimizers: Sequence[OptimizerInfo]) -> list[str]:
    """Return a line for each group of such parameters."""
    named: set[str] = set()
    lines = []
    for index, info in enumerate(tree.parameters):
        if info.same_storage and info.path not in named:
            named.update(info.same_storage)
            lines.append(same_storage_text(tree, index, optimizers) or "")
    return lines[:_MAX_LINES]


def _stepped(tree: TreeState, paths: Collection[str], optimizers: Sequence[OptimizerInfo]) -> int:
    """Return the number of these parameters that train and are in an optimizer."""
    owned = {index for optimizer in optimizers for index in optimizer.parameters}
    return sum(tree.parameters[index].path in paths and tree.trainable[index] == "1" for index in owned)
