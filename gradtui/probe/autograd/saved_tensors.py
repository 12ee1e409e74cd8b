"""Read from the autograd graph, without changing it, what autograd keeps for backward and where gradients flow.

At the beginning of a backward, the graph is walked from the tensors that backward was called on. Saved tensors are read
through `_raw_saved_*`, which neither runs hooks nor unpacks. `saved_tensors_hooks` would count the same bytes, but disable
autograd's in-place check.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Sequence
from dataclasses import field
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.autograd.graph_summary import GraphSummary, HiddenRegion, KnownTensors, ToInputs, is_plain_input
from gradtui.probe.autograd.module_ancestry import ModuleAncestry
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.autograd.module_outputs import ModuleOutputs
from gradtui.probe.autograd.stretch_starts import StretchStarts
from gradtui.probe.autograd.unknown_leaves import unknown_leaves
from gradtui.probe.model import Leaf
from gradtui.probe.torch_private.graph_depth import TooDeepError, deepest, is_too_deep
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
from gradtui.probe.torch_private.saved_hooks import (
    checkpoint_frame,
    copy_on_host,
    holder_of,
    is_number,
    is_reentrant_checkpoint,
    kept_by_frame,
)
from gradtui.probe.torch_private.saved_origins import kept_by
from gradtui.probe.torch_private.unwrap import PLAIN, plain_tensors


def walk(
    roots: Sequence[torch.Tensor],
    trace: ModuleCallLog,
    known: KnownTensors,
    outputs: ModuleOutputs | None = None,
    starts: StretchStarts | None = None,
) -> GraphSummary:
    """Walk the graph of a backward on `roots`. Keeps nothing, except what `outputs` and `starts` ask for.

    Raises `TooDeepError` if walking would do harm.
    """
    walking = _Walk(trace, known)
    facts = walking.over(roots)
    if outputs is not None:
        walking.find_outputs(roots, outputs)
    if starts is not None:
        walking.find_starts(starts)
    return facts


_DOUBLE_BACKWARD = "BackwardBackward"
"""Part of the names of the operations that a backward with `create_graph=True` records."""


@dataclass
class _Region:
    frame: Any
    number: int
    """The lowest sequence number of its operations."""
    modules: set[int] = field(default_factory=set)
    """The modules that have operations in it."""


class _Walk:
    """Walks a graph in one loop with few objects: there are about four nodes per layer, and Python's collector counts along."""

    def __init__(self, trace: ModuleCallLog, known: KnownTensors) -> None:
        self._trace = trace
        self._known = known
        self._ancestry = ModuleAncestry(known.parents)
        self._facts = GraphSummary()
        self._regions: dict[int, _Region] = {}
        """Regions by the `id()` of their frame."""
        self._first: dict[int, tuple[int, int]] = {}
        """Storage key -> sequence number and module of the operation that saved it first in the forward. Its bytes count for
        that module."""
        # Keep nodes alive while walking, because autograd recreates their Python objects and reuses addresses.
        self._indices: dict[GraphNode, int] = {}
        """The module of each visited node: the one that ran the operation, or that owns the parameter."""
        self._leaves: dict[GraphNode, Leaf] = {}
        self._inputs: list[torch.Tensor] = []
        """The leaves that are no known parameters."""
        self._visited: list[GraphNode] = []
        self._numbers: list[int] = []
        """Sequence numbers of `_visited`."""
        self._following: list[GraphNode] = []
        """The successors of the visited nodes, concatenated."""
        self._ends: list[int] = [0]
        """Offsets into `_following`: where the successors of one node end and those of the next begin."""

    def over(self, roots: Iterable[torch.Tensor]) -> GraphSummary:
        indices, leaves, module_of, ends = self._indices, self._leaves, self._trace.module_of, self._ends
        tops = [top for root in roots if (top := root.grad_fn) is not None and leaf_of(top) is None]
        waiting = list(dict.fromkeys(tops))
        most = deepest()
        for top in waiting:
            indices[top] = module_of(number_of(top))
        while waiting:
            node = waiting.pop()
            following = [next_node for next_node, _ in node.next_functions if next_node is not None]
            for next_node in following:
                if next_node in indices:
                    continue
                leaf = leaf_of(next_node)
                if leaf is None:
                    indices[next_node] = module_of(number_of(next_node))
                    waiting.append(next_node)
                else:
                    own = leaves[next_node] = self._known.leaves.get(id(leaf), _UNKNOWN)
                    indices[next_node] = own.module
                    if own is _UNKNOWN:
                        self._inputs.append(leaf)
            self._visited.append(node)
            self._numbers.append(number_of(node))
            self._following += following
            ends.append(len(self._following))
            self._visit(node, self._numbers[-1], indices[node], following)
            if len(self._visited) == most and is_too_deep(tops, most):
                raise TooDeepError
        self._conclude(self._follow())
        return self._facts

    def find_outputs(self, roots: Iterable[torch.Tensor], outputs: ModuleOutputs) -> None:
        """Add each output of an operation that the operation of another module takes, or that backward begins with."""
        indices, leaves, ends = self._indices, self._leaves, self._ends
        for root in roots:
            if root.grad_fn is not None and root.grad_fn in indices:
                outputs.add(root.grad_fn, root.output_nr, indices[root.grad_fn], OUTSIDE)
        for at, node in enumerate(self._visited):
            user = indices[node]
            if all(indices[next_node] == user for next_node in self._following[ends[at] : ends[at + 1]]):
                continue
            for next_node, output in node.next_functions:
                if next_node is not None and indices[next_node] != user and next_node not in leaves:
                    outputs.add(next_node, output, indices[next_node], user)

    def find_starts(self, starts: StretchStarts) -> None:
        """Add the operation that backward runs first of each stretch."""
        starts.find(self._visited, self._numbers, self._trace.numbers)

    def _conclude(self, led_to: Container[GraphNode]) -> None:
        facts = self._facts
        for region in self._regions.values():
            facts.regions.modules |= region.modules
            self._keep_inputs(kept_by_frame(region.frame), region.number, self._ancestry.around(region.modules))
        facts.operations = len(self._visited)
        if self._trace.numbers:
            first = self._trace.numbers[0]
            facts.earlier_operations = sum(number < first for number in self._numbers)
        if self._inputs:
            facts.unknown_leaves = unknown_leaves(
                [node for node, own in self._leaves.items() if own is _UNKNOWN],
                [(self._visited[at], self._following[self._ends[at] : self._ends[at + 1]]) for at in self._in_order()],
                lambda node: self._indices[node] == OUTSIDE,
                led_to,
            )
        if self._inputs and all(map(is_plain_input, self._inputs)):
            facts.to_inputs = self._found_to_inputs(led_to)
        for key, (_, module) in self._first.items():
            facts.by_module[module] = facts.by_module.get(module, 0) + facts.storages[key]
            facts.saved_by[key] = module

    def _visit(self, node: GraphNode, number: int, module: int, following: list[GraphNode]) -> None:
        facts, indices = self._facts, self._indices
        facts.active.add(module)
        if hides_modules(node):
            if is_reentrant_checkpoint(node):
                self._count_reentrant(node, number, module, following)
                return
            facts.opaque.add(module)
        elif module not in facts.passing:
            for next_node in following:
                if indices[next_node] != module:
                    facts.passing.add(module)
                    break
        if module == OUTSIDE and _DOUBLE_BACKWARD in node.name():
            self._charge_forward(node)
        kept = saved_tensors(node)
        if kept:
            self._count(kept, number, module, following)

    def _charge_forward(self, node: GraphNode) -> None:
        """Assign what a double backward keeps of a model's forward to the operation that used it there.

        That operation saved it first, and may not be in this graph: with a gradient penalty the model's output is not. It is
        the one that followed the operation that made the tensor. No operation of the model follows the model's output.
        """
        for tensor, maker in kept_by(node):
            if maker is None:
                continue
            number = number_of(maker) + 1
            module = self._trace.module_of(number)
            for plain in plain_tensors(tensor) if module != OUTSIDE else ():
                key = storage_key(plain)
                if key not in self._known.excluded:
                    self._keep(plain, key, number, module)

    def _count(self, kept: list[Any], number: int, module: int, following: list[GraphNode]) -> None:
        facts, excluded, first = self._facts, self._known.excluded, self._first
        for saved in kept:
            data = saved_data(saved)
            if data is None:
                self._look_behind_hooks(saved, number, module)
                continue
            is_plain = type(data) in PLAIN and data.layout is torch.strided
            for tensor in (data,) if is_plain else plain_tensors(data):
                key = storage_key(tensor)
                owner = excluded.get(key)
                if owner is None:
                    charged = first.get(key)
                    if charged is None or number < charged[0]:
                        self._keep(tensor, key, number, module)
                    continue
                if key in self._known.shared:
                    owner = self._user(tensor, key, module)
                if owner != OUTSIDE and any(self._is_beyond(next_node, owner) for next_node in following):
                    # A frozen weight is kept for one purpose: to pass the gradient on to the operation's input. This
                    # also identifies modules that never run themselves, such as the output projection of
                    # nn.MultiheadAttention.
                    facts.passing.add(owner)

    def _user(self, tensor: torch.Tensor, key: int, module: int) -> int:
        """Return the owner of the parameter that an operation of `module` saved, if that is a frozen one; else OUTSIDE.

        The storage `key` of `tensor` has several parameters. A model uses its own, whatever they share with others.
        """
        span = span_of(tensor)
        owners = {part.module: part.is_frozen for part in self._known.shared[key] if overlap(part.bytes, span)}
        if module in owners:
            return module if owners[module] else OUTSIDE
        root = self._ancestry.root(module)
        return next(
            (each for each, is_frozen in owners.items() if is_frozen and self._ancestry.root(each) == root), OUTSIDE
        )

    def _keep(self, tensor: torch.Tensor, key: int, number: int, module: int) -> None:
        """Count a storage once, for the earliest operation that keeps it."""
        facts, charged = self._facts, self._first.get(key)
        if charged is not None:
            if number < charged[0]:
                self._first[key] = number, module
            return
        devices = self._known.devices
        if is_number(tensor) or (devices is not None and tensor.device not in devices):
            return
        storage = tensor.untyped_storage()
        size = facts.storages[key] = storage.nbytes()
        facts.references[key] = weakref.ref(storage)
        facts.total += size
        self._first[key] = number, module

    def _look_behind_hooks(self, saved: Any, number: int, module: int) -> None:
        """Handle a saved tensor that is hooked (or already freed): read the placeholder of known hooks."""
        facts = self._facts
        if getattr(saved, "unpack_hook", None) is None:
            return
        frame = checkpoint_frame(saved)
        if frame is not None:
            region = self._regions.setdefault(id(frame), _Region(frame, number))
            region.number = min(region.number, number)
            region.modules.add(module)
            holder = holder_of(saved)
            if holder is not None:
                facts.regions.holders.set(holder, module)
            facts.regions.recomputed[module] = None
        copy = copy_on_host(saved)
        for tensor in plain_tensors(copy) if copy is not None else ():
            key, storage = storage_key(tensor), tensor.untyped_storage()
            facts.offloaded[key] = storage.nbytes()
            facts.references[key] = weakref.ref(storage)

    def _count_reentrant(self, node: GraphNode, number: int, module: int, following: list[GraphNode]) -> None:
        entered = self._trace.entered_within(number, module)
        leads_on = any(each not in self._leaves or self._leaves[each].parameter >= 0 for each in following)
        self._facts.regions.hidden[number] = HiddenRegion(module, frozenset(entered), leads_on)
        self._facts.regions.modules |= entered
        around = self._ancestry.around(entered or {module})
        self._facts.regions.reentrant[number] = around
        self._facts.regions.recomputed[around] = None
        data = (saved_data(saved) for saved in saved_tensors(node))
        self._keep_inputs((tensor for tensor in data if tensor is not None), number, around)

    def _keep_inputs(self, tensors: Iterable[torch.Tensor], number: int, module: int) -> None:
        regions = self._facts.regions
        sizes: dict[int, int] = {}
        for tensor in (plain for given in tensors for plain in plain_tensors(given)):
            key = storage_key(tensor)
            if key not in self._known.excluded and not is_number(tensor):
                storage = tensor.untyped_storage()
                sizes[key] = storage.nbytes()
                regions.kept[key] = weakref.ref(storage)
                self._keep(tensor, key, number, module)
        inputs = regions.inputs
        inputs[module] = inputs.get(module, 0) + sum(sizes.values())

    def _is_beyond(self, node: GraphNode, module: int) -> bool:
        """Return whether this is an operation, or a parameter that is not the module's own."""
        own = self._leaves.get(node)
        return own is None or own.module != module

    def _in_order(self) -> list[int]:
        """Return the places of the visited nodes, the operation that ran first at first."""
        return sorted(range(len(self._visited)), key=self._numbers.__getitem__)

    def _found_to_inputs(self, led_to: Container[GraphNode]) -> ToInputs | None:
        """Return the operations through which a gradient comes to no parameter; None if they may be needed.

        A double backward needs them, and a reentrant checkpoint needs an input that requires a gradient.
        """
        regions = self._facts.regions
        if self._facts.opaque or regions.hidden or regions.recomputed:
            return None
        if any(_DOUBLE_BACKWARD in node.name() for node in self._visited):
            return None
        if not any(node in led_to for node in self._visited):
            # Nothing but the input is trained: the script runs backward for it.
            return None
        numbers: set[int] = set()
        modules: set[int] = set()
        needed: set[int] = set()
        for node, number in zip(self._visited, self._numbers):
            if node not in led_to:
                numbers.add(number)
                modules.add(self._indices[node])
                continue
            for saved in saved_tensors(node):
                data = saved_data(saved)
                needed.update(map(storage_key, plain_tensors(data)) if data is not None else ())
        size = sum(
            self._facts.storages[key]
            for key, (number, _) in self._first.items()
            if number in numbers and key not in needed
        )
        return ToInputs(tuple(map(weakref.ref, self._inputs)), frozenset(modules - {OUTSIDE}), size)

    def _follow(self) -> Container[GraphNode]:
        """Return the operations through which a gradient comes to a parameter.

        Find where the gradient goes from each module, and a parameter of another module that it reaches through it.

        An operation is recorded after those whose results it takes, so in the order of sequence numbers every node comes
        after its successors. Two parameters of different modules are carried along, so that one of them belongs to another
        module.
        """
        nodes, numbers, all_following, ends = self._visited, self._numbers, self._following, self._ends
        upstream, edges, indices = self._facts.upstream, self._facts.edges, self._indices
        first = {node: own for node, own in self._leaves.items() if own.parameter >= 0}
        second: dict[GraphNode, Leaf] = {}
        for at in sorted(range(len(nodes)), key=numbers.__getitem__):
            node = nodes[at]
            module = indices[node]
            one = other = None
            for next_node in all_following[ends[at] : ends[at + 1]]:
                edges.add((module, indices[next_node]))
                if other is not None or next_node not in first:
                    continue
                for each in (first[next_node], second.get(next_node)):
                    if one is None:
                        one = each
                    elif other is None and each is not None and each.module != one.module:
                        other = each
            if one is not None:
                first[node] = one
                upstream_of = one if one.module != module else other
                if upstream_of is not None:
                    upstream[module] = upstream_of.parameter
            if other is not None:
                second[node] = other
        return first


_UNKNOWN = Leaf(-1, OUTSIDE)
