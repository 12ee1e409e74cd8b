"""Find out about leaves of a graph that are no parameters of the models: whether they stand beside a model or before it."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping, Sequence

from gradtui.probe.autograd.graph_summary import UnknownLeaf
from gradtui.probe.autograd.module_call_log import OUTSIDE
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of


def found_leaves(
    nodes: Sequence[GraphNode],
    visited: Iterable[tuple[GraphNode, Sequence[GraphNode]]],
    modules: Mapping[GraphNode, int],
    led_to: Container[GraphNode],
) -> list[UnknownLeaf]:
    """Return the leaves of these nodes, each with whether an operation outside of modules joins it with what parameters led to.

    An input of a model meets the parameters within the model's modules.

    Args:
        nodes: the nodes of the unknown leaves.
        visited: each operation with those whose results it takes, in the order of the forward.
        modules: the module of each operation.
        led_to: the operations that parameters have led to.
    """
    leaves_of = {node: {at} for at, node in enumerate(nodes)}
    joined: set[int] = set()
    for node, following in visited:
        found = set().union(*(leaves_of[each] for each in following if each in leaves_of))
        if not found or modules[node] != OUTSIDE:
            continue
        if node in led_to:
            joined |= found
        else:
            leaves_of[node] = found
    leaves = ((at, leaf) for at, node in enumerate(nodes) if (leaf := leaf_of(node)) is not None)
    return [UnknownLeaf(weakref.ref(leaf), at in joined) for at, leaf in leaves]
