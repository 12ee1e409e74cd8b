"""Find where in a forward the first NaN or Inf originated, by reading the autograd graph before backward frees it.

Autograd saves many inputs and results of operations; the `grad_fn` of a saved tensor identifies the operation that made it.
The search reports the earliest operation with a non-finite result. If the inputs of that operation were not saved, it reports
all operations that the value may have come from. Runs on the training thread. It keeps nothing, and does not unpack tensors
behind hooks (checkpointing, offloading).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import torch

from gradtui.probe.autograd import OUTSIDE, ModuleCallLog
from gradtui.probe.gradients.nonfinite_check import BELOW, FINITE, INF, NAN, NonFiniteCheck, worst
from gradtui.probe.model import ModuleTree, buffers_of
from gradtui.probe.torch_private.graph_depth import deepest, is_too_deep
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, number_of, storage_key
from gradtui.probe.torch_private.saved_origins import kept_by


@dataclass(frozen=True)
class Origin:
    """The origin of a non-finite value."""

    kind: str
    """What the tensor holds (`nonfinite_check.NAN` and the like)."""
    module: int
    """Index of the module whose operation produced it; OUTSIDE if none."""
    last: int
    """Index of the last module that it may have come from; equal to `module` if the origin is known."""
    is_input: bool = False
    """The value was in an input of the module from outside the graph: a batch, or the result of code without autograd."""
    is_exact: bool = True
    """False if the origin may be a nearby module: module calls were not logged, or time ran out."""


def find_origin(
    roots: Iterable[torch.Tensor], loss: str, tree: ModuleTree, trace: ModuleCallLog | None, check: NonFiniteCheck
) -> Origin | None:
    """Return the origin of a non-finite loss; None if time ran out or the graph is too deep.

    `loss` says what kind of value it is. Without a `trace`, operations are assigned to modules by the parameters they use.
    """
    return _Search(tree, trace, check).origin([root.grad_fn for root in roots if root.grad_fn is not None], loss)


class _Search:
    def __init__(self, tree: ModuleTree, trace: ModuleCallLog | None, check: NonFiniteCheck) -> None:
        self._tree = tree
        self._check = check
        owned = (*tree.live_parameters(), *buffers_of(tree))
        self._own = {_storage(each) for _, each in owned} - {None}
        """Storage keys to skip. Weights were checked before, and the running statistics reflect a module's inputs."""
        self._trace = trace
        self._owners: list[tuple[int, int]] = []
        """(sequence number, module) of the operations that use a parameter, in order; only without a trace."""
        self._results: dict[GraphNode, str] = {}
        """What the result of each operation holds, as far as it was saved."""
        self._inputs: list[tuple[int, str]] = []
        """(sequence number of the operation, what the tensor holds) for tensors that no operation of the graph made."""

    def origin(self, roots: list[GraphNode], loss: str) -> Origin | None:
        known = operations_of(roots)
        if known is None:
            return None
        nodes = sorted(known, key=number_of)
        if self._trace is None:
            self._owners = sorted(self._owned(nodes))
        for node in nodes:
            if self._check.is_over:
                break
            self._examine(node)
        for kinds in ((NAN, INF), (BELOW,)):
            origin = self._earliest(kinds)
            if origin is not None:
                return origin
        return None if self._check.is_over else self._back_from(roots, loss)

    def _earliest(self, kinds: Collection[str]) -> Origin | None:
        result = min((node for node, kind in self._results.items() if kind in kinds), key=number_of, default=None)
        given = min((each for each in self._inputs if each[1] in kinds), default=None)
        if given is not None and (result is None or given[0] <= number_of(result)):
            index = self._module_of(given[0])
            return Origin(given[1], index, index, is_input=True, is_exact=self._is_exact)
        return None if result is None else self._back_from([result], self._results[result])

    def _back_from(self, start: list[GraphNode], kind: str) -> Origin:
        """Return the range of operations that a bad result may come from, back to those with saved, finite results."""
        suspects, waiting = set(start), list(start)
        while waiting:
            for node, _ in waiting.pop().next_functions:
                if node is not None and node not in suspects and node not in self._results and leaf_of(node) is None:
                    suspects.add(node)
                    waiting.append(node)
        numbers = sorted(map(number_of, suspects))
        modules = [self._module_of(number) for number in numbers]
        return Origin(kind, modules[0], modules[-1], is_exact=self._is_exact)

    @property
    def _is_exact(self) -> bool:
        return self._trace is not None and not self._check.is_over

    def _examine(self, node: GraphNode) -> None:
        for tensor, made_by in kept_by(node):
            kind = self._check.at(tensor) if _storage(tensor) not in self._own else None
            if kind is None:
                continue
            if made_by is None and not tensor.dim():
                # A constant of the operation, as in `x * 0.5`.
                made_by = node
            if made_by is not None:
                self._results[made_by] = worst((kind, self._results.get(made_by, FINITE)))
            elif kind != FINITE:
                self._inputs.append((number_of(node), kind))

    def _module_of(self, number: int) -> int:
        if self._trace is not None:
            return self._trace.module_of(number)
        index = bisect_right(self._owners, (number, len(self._tree.modules))) - 1
        return self._owners[index][1] if index >= 0 else OUTSIDE

    def _owned(self, nodes: list[GraphNode]) -> Iterator[tuple[int, int]]:
        for node in nodes:
            for following, _ in node.next_functions:
                leaf = leaf_of(following) if following is not None else None
                index = self._tree.owns(leaf) if leaf is not None else None
                if index is not None:
                    yield number_of(node), self._tree.parameters[index].module


def operations_of(roots: list[GraphNode]) -> set[GraphNode] | None:
    """Return every operation of the graph; None if traversing it would do harm (see `graph_depth`)."""
    seen, waiting, most = set(roots), list(roots), deepest()
    is_checked = False
    while waiting:
        if not is_checked and len(seen) >= most:
            if is_too_deep(roots, most):
                return None
            is_checked = True
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen and leaf_of(node) is None:
                seen.add(node)
                waiting.append(node)
    return {node for node in seen if leaf_of(node) is None}


def _storage(tensor: torch.Tensor) -> int | None:
    """Return the key of a tensor's storage; None if it has no storage of its own (sparse tensors, wrappers)."""
    try:
        return storage_key(tensor)
    except (NotImplementedError, RuntimeError):
        return None
