"""How deep a graph may be for us to look at it. Training thread.

A node that Python has seen takes its turn on the C stack when the graph is freed (measured with torch 2.13: a chain of 40,000
such operations is freed, one of 50,000 ends the process with a segmentation fault; none of them seen, a million is freed).
So whoever looks at a graph must know beforehand that it is not deep, without seeing too much of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from gradtui.probe.torch_private import GraphNode, leaf_of

DEEPEST = 10_000
"""Operations on one way: a quarter of what was seen to be safe."""


class TooDeepError(Exception):
    """A graph that nobody must look at."""


def is_too_deep(roots: Iterable[GraphNode], deepest: int = DEEPEST) -> bool:
    """Whether a way of more than so many operations begins at these nodes. Sees none that are deeper than that.

    The node with the highest number comes next: operations are recorded after those whose results they take, so whatever
    leads to it has come before, and how deep it is is known.
    """
    depths = dict.fromkeys(roots, 0)
    waiting = [(-_number(node), place, node) for place, node in enumerate(depths)]
    heapq.heapify(waiting)
    while waiting:
        _, _, node = heapq.heappop(waiting)
        depth = depths[node] + 1
        if depth > deepest:
            return True
        for next_node, _ in node.next_functions:
            if next_node is None or leaf_of(next_node) is not None:
                continue
            if next_node not in depths:
                heapq.heappush(waiting, (-_number(next_node), len(depths), next_node))
            depths[next_node] = max(depth, depths.get(next_node, 0))
    return False


def _number(node: GraphNode) -> int:
    number: int = node._sequence_nr()  # noqa: SLF001 - the graph's public API has no number
    return number
