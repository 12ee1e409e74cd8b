"""Find the operation that backward runs first of each stretch of a forward: where the code of another module begins there.

The engine runs the operations of one device in the order of their sequence numbers, the highest first (`ReadyQueue` in
torch/csrc/autograd/engine.cpp), and all operations of a stretch have numbers next to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from gradtui.probe.torch_private.private_names import GraphNode


class StretchStarts:
    """These operations of one graph. It keeps the graph alive: drop it when backward begins."""

    def __init__(self) -> None:
        self.operations: dict[int, GraphNode] = {}
        """By the index of a stretch in `ModuleCallLog.numbers`; -1 before the first module call."""

    def find(self, nodes: Iterable[GraphNode], numbers: Iterable[int], boundaries: Sequence[int]) -> None:
        """Find them among `nodes` with these sequence numbers; `boundaries` are those at which stretches begin."""
        highest: dict[int, int] = {}
        for node, number in zip(nodes, numbers):
            stretch = bisect_right(boundaries, number) - 1
            if number >= highest.get(stretch, 0):
                highest[stretch] = number
                self.operations[stretch] = node
