"""The order of the modules in the tree: the order of their first calls, or that of their registration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gradtui.protocol.vocabulary import ModuleInfo
from gradtui.run.state.tree_state import TreeState

Order = Literal["execution", "registration"]


class CallRanks:
    """The rank of each module in the order of first calls, for one structure.

    The first known rank of a module stays, so that rows do not move when a later step calls modules in another order.
    """

    def __init__(self, tree: TreeState) -> None:
        self._tree = tree
        self._of: tuple[int, ...] | None = None
        self.ranks: list[int] = []
        """By module, from 1; 0 while unknown. Empty while none is known."""

    def update(self) -> bool:
        """Apply the newest order of calls. Return True if a rank has become known."""
        called = self._tree.gradient_flow.called if self._tree.gradient_flow is not None else ()
        if called is self._of or len(called) != len(self._tree.modules):
            return False
        self._of = called
        ranks = self.ranks or [0] * len(called)
        self.ranks = [known or max(0, rank) for known, rank in zip(ranks, called)]
        return self.ranks != ranks


def execution_sequence(modules: Sequence[ModuleInfo], ranks: Sequence[int]) -> Sequence[int]:
    """Return the indexes of all modules depth-first, with siblings in the order of their first calls.

    A module that is not called itself, such as a ModuleList, has the lowest rank of those in it. A sibling without a rank
    follows those that have one, in the order of registration.

    Args:
        modules: the modules, depth-first in the order of registration.
        ranks: the rank of each module, 0 where unknown.
    """
    if not any(ranks):
        return range(len(modules))
    last = len(modules) + 1
    firsts = list(ranks)
    for index in range(len(modules) - 1, -1, -1):
        parent = modules[index].parent
        if parent >= 0 and not ranks[parent] and firsts[index]:
            firsts[parent] = min(firsts[parent] or last, firsts[index])
    children: dict[int, list[int]] = {}
    for index, module in enumerate(modules):
        children.setdefault(module.parent, []).append(index)
    for siblings in children.values():
        if len(siblings) > 1:
            siblings.sort(key=lambda index: firsts[index] or last)
    sequence: list[int] = []
    waiting = children.get(-1, [])[::-1]
    while waiting:
        index = waiting.pop()
        sequence.append(index)
        if index in children:
            waiting += children[index][::-1]
    return sequence
