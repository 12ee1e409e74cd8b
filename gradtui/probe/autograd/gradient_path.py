"""Find the path of a gradient from the loss to one parameter or module in autograd's graph. Training thread.

The graph is traversed once, breadth-first from the tensors that backward is called on, so the path found has the fewest
operations. A node's sequence number determines its module, as in `saved_tensors`. Nothing of the graph is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.model import ModuleTree
from gradtui.probe.torch_private.private_names import (
    GraphNode,
    hides_modules,
    leaf_of,
    number_of,
    overlap,
    saved_data,
    saved_tensors,
    span_of,
    storage_key,
)
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.protocol.events import GradientPath
from gradtui.protocol.vocabulary import MAX_PATHS, GradientHop

MAX_OPERATIONS = 100_000
"""Maximum number of operations to traverse, starting from the loss, which takes about half a second."""
_NAMES = 4

_Goal = Callable[[GraphNode], bool]
_Before = dict[GraphNode, GraphNode | None]
"""The node from which each node was reached first; None for the first ones."""


@dataclass(frozen=True)
class Target:
    """The destination of the path, given by indices of the module tree."""

    tree: ModuleTree
    module: int
    parameter: int = -1
    """Parameter index, or -1 for the module itself."""

    @property
    def modules(self) -> range:
        """The module and its submodules; for a parameter, the module that owns it."""
        count = self.tree.modules[self.module].subtree_modules if self.parameter < 0 else 1
        return range(self.module, self.module + count)

    def tensor(self) -> torch.Tensor | None:
        """Return the parameter as long as it is alive."""
        return self.tree.parameter_refs[self.parameter]() if self.parameter >= 0 else None


def find_gradient_path(
    roots: Iterable[torch.Tensor], trace: ModuleCallLog, target: Target, most: int = MAX_OPERATIONS
) -> GradientPath:
    """Find the path from the roots of a backward to `target`. Their graph must not be too deep (`graph_depth`)."""
    graph = _Graph([root.grad_fn for root in roots if root.grad_fn is not None], trace, most)
    tensor, own = target.tensor(), target.modules
    is_leaf = tensor is not None and tensor.requires_grad
    goal: _Goal = lambda node: leaf_of(node) is tensor if is_leaf else graph.module_of(node) in own  # noqa: E731
    node = graph.first(goal)
    if node is None and tensor is not None and not is_leaf:
        # A frozen weight that another module's operation uses, such as the output projection of nn.MultiheadAttention.
        goal = _user_of(tensor)
        node = graph.first(goal)
    if node is None:
        return graph.as_far_as(target)
    path, operations = _path_to(node, graph.before), len(graph.following)
    if is_leaf:
        uses = sum(node in following for following in graph.following.values())
        return GradientPath(
            True, graph.hops(path[:-1]), (), target.parameter, graph.count_paths(goal), uses, operations
        )
    onward, upstream = graph.onward(node, target)
    return GradientPath(True, graph.hops(path), onward, upstream, graph.count_paths(goal), 0, operations)


def _user_of(tensor: torch.Tensor) -> _Goal:
    spans = {storage_key(plain): span_of(plain) for plain in plain_tensors(tensor)}

    def is_part(plain: torch.Tensor) -> bool:
        span = spans.get(storage_key(plain))
        return span is not None and overlap(span, span_of(plain))

    def uses(node: GraphNode) -> bool:
        if hides_modules(node):
            return False
        data = (saved_data(saved) for saved in saved_tensors(node))
        return any(is_part(plain) for each in data if each is not None for plain in plain_tensors(each))

    return uses


class _Graph:
    """The operations that some roots lead to, and the leaves they end at."""

    def __init__(self, roots: Sequence[GraphNode], trace: ModuleCallLog, most: int) -> None:
        self.following: dict[GraphNode, list[GraphNode]] = {}
        """Successors of each node in the order of traversal. A leaf has none."""
        self.whole = True
        self._trace = trace
        self.before: _Before = dict.fromkeys(roots)
        for node in self._breadth_first(self.before):
            if len(self.following) >= most:
                self.whole = False
                break
            is_leaf = leaf_of(node) is not None
            self.following[node] = [] if is_leaf else [each for each, _ in node.next_functions if each is not None]

    def _breadth_first(self, before: _Before) -> Iterator[GraphNode]:
        """Yield the nodes in `before` and all that follow them, and add the latter to `before`."""
        waiting = list(before)
        for node in waiting:
            yield node
            for next_node in self.following.get(node, ()):
                if next_node not in before:
                    before[next_node] = node
                    waiting.append(next_node)

    def module_of(self, node: GraphNode) -> int:
        """Return the module that ran this operation; OUTSIDE for a leaf, which is no module's operation."""
        return OUTSIDE if leaf_of(node) is not None else self._trace.module_of(number_of(node))

    def first(self, goal: _Goal) -> GraphNode | None:
        """Return the node nearest to the loss that satisfies `goal`."""
        return next((node for node in self.following if goal(node)), None)

    def hops(self, path: Iterable[GraphNode]) -> tuple[GradientHop, ...]:
        """Return the path as hops, with adjacent nodes of one module merged."""
        found = []
        for module, nodes in groupby(path, self.module_of):
            listed = list(nodes)
            names = tuple(dict.fromkeys(str(node.name()) for node in listed))[:_NAMES]
            found.append(GradientHop(module, len(listed), names, any(map(hides_modules, listed))))
        return tuple(found)

    def count_paths(self, goal: _Goal) -> int:
        """Return the number of paths from the loss to the nodes that satisfy `goal`. Each path ends at the first such node."""
        counts: dict[GraphNode, int] = {}
        leaves = [node for node in self.following if leaf_of(node) is not None]
        operations = [node for node in self.following if leaf_of(node) is None]
        # An operation is recorded after those whose results it takes, so its successors have lower sequence numbers.
        for node in [*leaves, *sorted(operations, key=number_of)]:
            count = 1 if goal(node) else sum(counts.get(each, 0) for each in self.following[node])
            counts[node] = min(count, MAX_PATHS)
        return min(MAX_PATHS, sum(counts.get(node, 0) for node, before in self.before.items() if before is None))

    def onward(self, entry: GraphNode, target: Target) -> tuple[tuple[GradientHop, ...], int]:
        """Return the path from an operation in the target to the nearest trainable parameter outside it, and its index."""
        tree, own = target.tree, target.modules
        before: _Before = {entry: None}
        for node in self._breadth_first(before):
            leaf = leaf_of(node)
            index = tree.owns(leaf) if leaf is not None else None
            if index is not None and tree.parameters[index].module not in own:
                return self.hops(_path_to(node, before)[:-1]), index
        return (), -1

    def hides(self, target: Target) -> bool:
        """Return whether the target's operations may be inside an operation that represents the code of several modules."""
        hiding = {self.module_of(node) for node in self.following if hides_modules(node)}
        return OUTSIDE in hiding or any(module in hiding for module in target.tree.around(target.module))

    def as_far_as(self, target: Target) -> GradientPath:
        """Return the path to the first operation after the target ran, or to the first operation of its ancestors."""
        node = self.first(lambda node: self.module_of(node) in target.modules)
        ended = self._trace.ended(target.modules)
        if node is None and ended is not None:
            operations = [node for node in self.following if leaf_of(node) is None]
            node = min((node for node in operations if number_of(node) >= ended), key=number_of, default=None)
        hops = self.hops(_path_to(node, self.before)) if node is not None else ()
        holders = set(target.tree.around(target.module)) - {target.module}
        # The order of calls does not show what an ancestor does with the results of several other modules.
        end = next((index for index, hop in enumerate(hops, start=1) if hop.module in holders), len(hops))
        hidden = self.hides(target)
        return GradientPath(hops=hops[:end], operations=len(self.following), whole=self.whole, hidden=hidden)


def _path_to(node: GraphNode, before: _Before) -> list[GraphNode]:
    path = [node]
    while (previous := before[path[-1]]) is not None:
        path.append(previous)
    return path[::-1]
