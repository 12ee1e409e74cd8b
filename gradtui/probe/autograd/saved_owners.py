"""Find what the autograd graph of any tensors keeps, and which module's operation saved it. Any thread.

Unlike the walk at the beginning of a backward, this one starts anywhere, possibly while part of the graph is being freed, and
usually without a log of module calls. Then the module of an operation is the owner of a parameter that it takes; any other
operation is assigned to the preceding operation that takes one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

import torch

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.model import ModuleTree, nearest_leaf
from gradtui.probe.torch_private.graph_depth import deepest, is_too_deep
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, number_of, saved_data, saved_tensors

_BATCH = 1_000
"""Number of nodes between two checks of the time limit."""


class SavedOwners:
    """Walks a graph once, then names the owners of the tensors that its nodes have saved."""

    def __init__(self, tree: ModuleTree, trace: ModuleCallLog | None) -> None:
        self._tree = tree
        self._trace = trace
        self._numbers: list[int] = []
        self._modules: list[int] = []
        """The sequence numbers of the operations that take a parameter, in order, and the modules that own it."""
        self.is_cut = False
        """Whether the last walk ended before it had visited every node, or must not visit them."""

    def nodes_of(
        self, tensors: Iterable[torch.Tensor], is_late: Callable[[], bool] = lambda: False
    ) -> Iterator[GraphNode]:
        """Yield every node of the graphs of these tensors once; none if traversing them would do harm (see `graph_depth`).

        The nodes are yielded after all are known, so that they can be named, in the order of the forward: of several
        operations that keep a storage, the first one claims it.
        """
        waiting: list[GraphNode] = []
        for tensor in tensors:
            try:
                node = tensor.grad_fn
            except Exception:  # noqa: BLE001 - autograd forbids access to it: a view that was written to
                continue
            if node is not None:
                waiting.append(node)
        seen, tops = set(waiting), list(waiting)
        visited, most = 0, deepest()
        anchors: list[tuple[int, int]] = []
        while waiting:
            node = waiting.pop()
            visited += 1
            if visited == most and is_too_deep(tops, most):
                self.is_cut = True
                return
            if visited % _BATCH == 0 and is_late():
                self.is_cut = True
                break
            for following, _ in node.next_functions:
                if following is not None and following not in seen and leaf_of(following) is None:
                    seen.add(following)
                    waiting.append(following)
            index = nearest_leaf(node, self._tree.owns) if self._trace is None else None
            if index is not None:
                anchors.append((number_of(node), self._tree.parameters[index].module))
        anchors.sort()
        self._numbers, self._modules = [number for number, _ in anchors], [module for _, module in anchors]
        yield from sorted(seen, key=number_of)

    def saved_by(self, node: GraphNode) -> Iterator[tuple[torch.Tensor, str]]:
        """Yield (tensor, owner in words) for what this node keeps; nothing if the node is freed or the tensor is hooked."""
        try:
            kept = [saved_data(saved) for saved in saved_tensors(node)]
        except Exception:  # noqa: BLE001 - a custom Function's that is freed
            return
        for data in kept:
            if data is not None:
                yield data, f"saved for backward {self.words(node)}"

    def words(self, node: GraphNode) -> str:
        """Return `in blocks.3.fc (AddmmBackward0)` if that is known, else `by GeluBackward0 after blocks.3.fc`."""
        name, number = str(node.name()), number_of(node)
        if self._trace is not None:
            index = self._trace.module_of(number)
            return f"by {name}" if index == OUTSIDE else f"in {self._path(index)} ({name})"
        before = bisect_right(self._numbers, number) - 1
        if before < 0:
            return f"by {name}"
        path = self._path(self._modules[before])
        return f"in {path} ({name})" if self._numbers[before] == number else f"by {name} after {path}"

    def _path(self, module: int) -> str:
        return self._tree.modules[module].path or "the model"
