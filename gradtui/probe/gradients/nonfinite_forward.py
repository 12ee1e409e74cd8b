"""Find where in a forward the first NaN or Inf originated, by reading the autograd graph before backward frees it.

Autograd saves many inputs and results of operations; the `grad_fn` of a saved tensor identifies the operation that made it.
The search reports the earliest operation with a non-finite result. If the inputs of that operation were not saved, it reports
all operations that the value may have come from. Runs on the training thread. It keeps nothing, and does not unpack tensors
behind hooks (checkpointing, offloading).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import OUTSIDE, ModuleCallLog
from gradtui.probe.gradients.nonfinite_check import BELOW, FINITE, INF, NAN, NonFiniteCheck, worst
from gradtui.probe.gradients.nonfinite_path import reaches
from gradtui.probe.gradients.nonfinite_values import ONLY_OVERFLOW, Made, is_unreadable, kind_of_node, made_of
from gradtui.probe.model import ModuleTree, buffers_of
from gradtui.probe.torch_private.graph_depth import deepest, is_too_deep
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, number_of, storage_key
from gradtui.probe.torch_private.saved_origins import kept_by
from gradtui.protocol.nonfinite import NonFiniteCause


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
    made: Made | None = None
    """What the operation made it of; None if that is unknown."""


def find_origin(
    roots: Iterable[torch.Tensor], loss: str, tree: ModuleTree, trace: ModuleCallLog | None, check: NonFiniteCheck
) -> Origin | None:
    """Return the origin of a non-finite loss; None if time ran out or the graph is too deep.

    `loss` says what kind of value it is. Without a `trace`, operations are assigned to modules by the parameters they use.
    """
    search = _Search(tree, trace, check)
    return search.origin({root.grad_fn: root.dtype for root in roots if root.grad_fn is not None}, loss)


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
        self._inputs: list[tuple[int, str, torch.dtype]] = []
        """(sequence number of the operation, what it holds, its dtype) for tensors that no operation of the graph made."""
        self._dtypes: dict[GraphNode, torch.dtype] = {}
        """The dtype of the result of each operation, as far as it was saved."""
        self._nodes, self._roots, self._loss = set[GraphNode](), set[GraphNode](), NAN

    def origin(self, roots: Mapping[GraphNode, torch.dtype], loss: str) -> Origin | None:
        known = operations_of(list(roots))
        if known is None:
            return None
        nodes = sorted(known, key=number_of)
        if self._trace is None:
            self._owners = sorted(self._owned(nodes))
        self._dtypes |= roots
        self._nodes, self._roots, self._loss = known, set(roots), loss
        for node in nodes:
            if self._check.is_over:
                break
            self._examine(node)
        origin = self._earliest((NAN, INF))
        if origin is not None or self._check.is_over:
            return origin
        said = self._back_from(list(roots), loss)
        below = self._earliest((BELOW,)) if said.made is None else None
        # Whether what was made of -Inf comes to the loss is known, and it does not.
        return replace(below, made=None) if below is not None else said

    def _earliest(self, kinds: Collection[str]) -> Origin | None:
        result = min((node for node, kind in self._results.items() if kind in kinds), key=number_of, default=None)
        given = min((each for each in self._inputs if each[1] in kinds), key=lambda each: each[:2], default=None)
        if given is not None and (result is None or given[0] <= number_of(result)):
            index = self._module_of(given[0])
            made = self._cast(given[2]) if given[1] != NAN else None
            return Origin(given[1], index, index, is_input=True, is_exact=self._is_exact, made=made)
        return None if result is None else self._back_from([result], self._results[result])

    def _back_from(self, start: list[GraphNode], kind: str) -> Origin:
        """Return the operation that made a bad result, or the range of those that may have, if its values do not tell."""
        suspects = self._behind(start, ())
        found = self._maker(start, kind, suspects)
        if found is not None:
            module = self._module_of(number_of(found[0]))
            return Origin(kind, module, module, is_exact=self._is_exact, made=found[1])
        numbers = sorted(map(number_of, self._behind(start, (BELOW, INF, NAN))))
        modules = [self._module_of(number) for number in numbers]
        made = self._overflow(start[0], suspects)
        return Origin(kind, modules[0], modules[-1], is_exact=self._is_exact, made=made)

    def _overflow(self, end: GraphNode, suspects: set[GraphNode]) -> Made | None:
        """Return an overflow, if nothing else can have made a result not finite, and the numbers are large enough for one."""
        dtype = self._dtypes.get(end)
        bound = self._check.largest**2 * self._check.elements
        if bound < _largest(dtype) or not all(kind_of_node(node) in ONLY_OVERFLOW for node in suspects):
            return None
        return Made(NonFiniteCause.OVERFLOW, None, dtype)

    def _cast(self, dtype: torch.dtype) -> Made | None:
        """Return an overflow, if a number of another tensor is too large for the dtype of an input that is Inf."""
        too_large = dtype in (torch.float16, torch.bfloat16) and self._check.largest > _largest(dtype)
        return Made(NonFiniteCause.OVERFLOW, None, dtype) if too_large else None

    def _behind(self, start: list[GraphNode], stops_at: Collection[str]) -> set[GraphNode]:
        """Return `start` and the operations that it depends on, back to those with results that are finite or in `stops_at`."""
        behind, waiting = set(start), list(start)
        while waiting:
            for node, _ in waiting.pop().next_functions:
                if node is None or node in behind or leaf_of(node) is not None:
                    continue
                if self._results.get(node) not in (FINITE, *stops_at):
                    behind.add(node)
                    waiting.append(node)
        return behind

    def _maker(self, start: list[GraphNode], kind: str, suspects: set[GraphNode]) -> tuple[GraphNode, Made] | None:
        """Return the first operation whose NaN or Inf comes to `start`; else the only one of which it may."""
        may: list[tuple[GraphNode, Made]] = []
        for node in sorted(suspects, key=number_of):
            if self._check.is_over:
                return None
            made = made_of(node) or self._difference(node, kind)
            if made is None or (not made.is_sure and self._is_given(node, suspects)):
                continue
            comes = reaches(node, made, start, suspects)
            if comes is False or reaches(node, made, self._roots, self._nodes) is False:
                continue
            if comes:
                return node, self._of_zero(node, made, kind)
            may.append((node, self._of_zero(node, made, kind)))
        return may[0] if len(may) == 1 else None

    def _of_zero(self, node: GraphNode, made: Made, kind: str) -> Made:
        """Return 0/0 or 0 * inf, if one element is NaN: the other operand, which was not saved, was 0 then."""
        causes = {
            NonFiniteCause.BY_ZERO: NonFiniteCause.ZERO_BY_ZERO,
            NonFiniteCause.TIMES_INF: NonFiniteCause.ZERO_TIMES_INF,
        }
        kind = self._loss if node in self._roots else kind
        is_one = kind == NAN and made.at is not None and made.at.numel() == 1 and kind_of_node(node) in ("Div", "Mul")
        if not is_one or self._is_given(node, self._behind([node], ())):
            return made
        return made._replace(cause=causes.get(made.cause, made.cause))

    def _difference(self, node: GraphNode, kind: str) -> Made | None:
        """Return inf - inf, if both operands are infinite and the result is NaN."""
        operands = [self._results.get(before) for before, _ in node.next_functions]
        is_so = kind == NAN and kind_of_node(node) in ("Add", "Sub") and operands in ([BELOW, BELOW], [INF, INF])
        return Made(NonFiniteCause.INF_MINUS_INF, None) if is_so else None

    def _is_given(self, node: GraphNode, suspects: set[GraphNode]) -> bool:
        """Return whether `node` may have been given NaN or Inf by an operation whose values cannot be read."""
        behind = self._behind([node], ()) - {node}
        return any(each in suspects and is_unreadable(each) for each in behind)

    @property
    def _is_exact(self) -> bool:
        return self._trace is not None and not self._check.is_over

    def _examine(self, node: GraphNode) -> None:
        for tensor, made_by in kept_by(node):
            kind = self._check.at(tensor) if _storage(tensor) not in self._own else None
            if kind is None:
                continue
            if made_by is None and not tensor.dim():
                if kind == FINITE:
                    continue
                # A constant of the operation, as in `x * 0.5`.
                made_by = node
            if made_by is not None:
                self._dtypes[made_by] = tensor.dtype
                self._results[made_by] = worst((kind, self._results.get(made_by, FINITE)))
            elif kind != FINITE:
                self._inputs.append((number_of(node), kind, tensor.dtype))

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


def _largest(dtype: torch.dtype | None) -> float:
    return torch.finfo(dtype).max if dtype is not None and dtype.is_floating_point else math.inf


def _storage(tensor: torch.Tensor) -> int | None:
    """Return the key of a tensor's storage; None if it has no storage of its own (sparse tensors, wrappers)."""
    try:
        return storage_key(tensor)
    except (NotImplementedError, RuntimeError):
        return None
