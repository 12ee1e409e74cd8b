"""Find which leaves of a graph that belong to no known model meet the results of parameters outside of modules."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable, Sequence

from gradtui.probe.autograd.graph_summary import UnknownLeaf
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of


def unknown_leaves(
    nodes: Sequence[GraphNode],
    operations: Iterable[tuple[GraphNode, Sequence[GraphNode]]],
    is_outside: Callable[[GraphNode], bool],
    led_to: Container[GraphNode],
) -> list[UnknownLeaf]:
    """Return the leaves, each with whether an operation outside of modules joins it with what parameters led to.

    An input of a model meets the parameters within the model's modules.

    Args:
        nodes: those that accumulate the gradients of these leaves.
        operations: each operation with those whose results it takes, the one that ran first at first.
        is_outside: whether an operation ran outside of all modules.
        led_to: the operations to which parameters led.
    """
    ids = {node: {at} for at, node in enumerate(nodes)}
    joined: set[int] = set()
    for node, following in operations:
        found = set().union(*(ids[each] for each in following if each in ids))
        if not found or not is_outside(node):
            continue
        if node in led_to:
            joined |= found
        else:
            ids[node] = found
    leaves = ((at, leaf) for at, node in enumerate(nodes) if (leaf := leaf_of(node)) is not None)
    return [UnknownLeaf(weakref.ref(leaf), at in joined) for at, leaf in leaves]
