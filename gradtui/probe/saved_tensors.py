"""What autograd keeps for backward, and where gradients flow, read from its graph without changing it.

At the beginning of a backward the graph is walked from the tensors backward was called on. Saved tensors are read through
`_raw_saved_*`, which neither runs hooks nor unpacks; `saved_tensors_hooks` would count the same bytes but switch off
autograd's in-place check.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from gradtui.probe.graph_depth import TooDeepError, deepest, is_too_deep
from gradtui.probe.module_trace import OUTSIDE, ModuleTrace
from gradtui.probe.plain_tensors import plain_tensors
from gradtui.probe.saved_hooks import (
    checkpoint_frame,
    copy_on_host,
    holder_of,
    is_number,
    is_reentrant_checkpoint,
    kept_by_frame,
)
from gradtui.probe.torch_private import (
    GraphNode,
    hides_modules,
    leaf_of,
    number_of,
    saved_data,
    saved_tensors,
    storage_key,
)


class Leaf(NamedTuple):
    """A trainable parameter: its place, and that of the module that owns it."""

    parameter: int
    module: int


@dataclass(frozen=True)
class KnownTensors:
    """What the walk is told of the models' tensors, by identity. Modules are places in the tree."""

    excluded: Mapping[int, int]
    """Storage key -> module, of what may be saved without being an activation: the owner of a frozen parameter, OUTSIDE
    for trainable parameters and buffers."""
    leaves: Mapping[int, Leaf]
    """Trainable parameters by their id()."""
    home: torch.device | None = None
    """What is on any other device is not counted; None counts all."""
    parents: Sequence[int] = ()
    """By module: the one around it, -1 if there is none."""


@dataclass
class Regions:
    """Checkpointed regions of one graph: parts of the forward that backward computes again."""

    inputs: dict[int, int] = field(default_factory=dict)
    """Module -> bytes that the region keeps, under the innermost module that all of it is within."""
    recomputed: dict[int, int | None] = field(default_factory=dict)
    """Module -> bytes that backward has computed again so far and would otherwise have been kept; None as long as that was
    not seen. A reentrant region's are under the innermost module that all of it is within."""
    holders: dict[int, int] = field(default_factory=dict)
    """id() of what stands in for a saved tensor -> the module whose operation would have saved it."""
    kept: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """Storage key -> that storage as long as it is alive, of `inputs`: backward frees one region's and uses its memory anew."""
    reentrant: dict[int, int] = field(default_factory=dict)
    """Number of a reentrant region's node -> module."""


@dataclass
class GraphFacts:
    """What one walk found. Bytes count each storage once; parameters and buffers are left out."""

    total: int = 0
    by_module: dict[int, int] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    """Modules with operations in the graph."""
    passing: set[int] = field(default_factory=set)
    """Modules through which a gradient passes on to something outside them."""
    opaque: set[int] = field(default_factory=set)
    """Modules with an operation that stands for several modules' code: a compiled region, a reentrant checkpoint."""
    upstream: dict[int, int] = field(default_factory=dict)
    """Module -> the place of a trainable parameter whose gradient is computed through it: why autograd keeps anything there
    beside what the module's own parameters need. The one that is fewest operations away from forward's end."""
    edges: set[tuple[int, int]] = field(default_factory=set)
    """(module, module) where a gradient goes from the operations of one to those of another, or to its parameter."""
    storages: dict[int, int] = field(default_factory=dict)
    """Storage key -> bytes, of what `total` counts. Numbers only: they tell nothing once the graph is freed."""
    offloaded: dict[int, int] = field(default_factory=dict)
    """Storage key -> bytes, of the copies that `save_on_cpu` keeps in place of what the operations would have saved."""
    references: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """Storage key -> that storage as long as it is alive, of both: a graph that is kept keeps all of them."""
    regions: Regions = field(default_factory=Regions)
    """What is checkpointed."""
    nodes: int = 0
    hooked: int = 0
    """Saved tensors behind hooks (checkpointing, offloading), whose bytes are not known from here."""
    is_whole: bool = True
    """False where another model ran in this step that is not in this graph: its own may be alive beside it."""

    def alive(self, apart_from: Iterable[int]) -> GraphFacts:
        """Of a graph that may be gone by now its living storages; nothing if those are all held by others, as some are."""
        alive = {key for key, reference in self.references.items() if reference() is not None}
        if len(alive) == len(self.references):
            return self
        alive -= set(apart_from)
        return GraphFacts(
            storages={key: size for key, size in self.storages.items() if key in alive},
            offloaded={key: size for key, size in self.offloaded.items() if key in alive},
            is_whole=self.is_whole,
        )

    def freed(self) -> GraphFacts:
        """What is kept once backward has freed this graph."""
        return GraphFacts(is_whole=self.is_whole)


def walk(roots: Iterable[torch.Tensor], trace: ModuleTrace, known: KnownTensors) -> GraphFacts:
    """Walk the graph that a backward on `roots` would run through; keeps nothing. Raises `TooDeepError` where it does harm."""
    return _Walk(trace, known).over(roots)


class _Walk:
    def __init__(self, trace: ModuleTrace, known: KnownTensors) -> None:
        self._trace = trace
        self._known = known
        self._facts = GraphFacts()
        self._frames: dict[int, tuple[Any, set[int]]] = {}
        """Checkpointed regions by id(), with the modules in them."""
        self._visited: list[tuple[int, GraphNode, int, list[GraphNode]]] = []

    def over(self, roots: Iterable[torch.Tensor]) -> GraphFacts:
        tops: list[GraphNode] = [root.grad_fn for root in roots if root.grad_fn is not None]
        waiting, most = list(tops), deepest()
        # Nodes are kept in `seen` while walking, because autograd makes their Python objects anew and reuses addresses.
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            if leaf_of(node) is not None:
                continue
            following = [next_node for next_node, _ in node.next_functions if next_node is not None]
            self._visit(node, following)
            if self._facts.nodes == most and is_too_deep(tops, most):
                raise TooDeepError
            for next_node in following:
                if next_node not in seen:
                    seen.add(next_node)
                    waiting.append(next_node)
        self._follow()
        for frame, modules in self._frames.values():
            self._keep_inputs(kept_by_frame(frame), self._around(modules))
        return self._facts

    def _visit(self, node: GraphNode, following: list[GraphNode]) -> None:
        facts = self._facts
        facts.nodes += 1
        number = number_of(node)
        module = self._trace.module_of(number)
        self._visited.append((number, node, module, following))
        facts.active.add(module)
        if hides_modules(node):
            facts.opaque.add(module)
        elif module not in facts.passing and any(self._owner(next_node) != module for next_node in following):
            facts.passing.add(module)
        self._count(node, module, following)

    def _count(self, node: GraphNode, module: int, following: Sequence[GraphNode]) -> None:
        facts, excluded = self._facts, self._known.excluded
        if is_reentrant_checkpoint(node):
            self._count_reentrant(node, module)
            return
        for saved in saved_tensors(node):
            data = saved_data(saved)
            if data is None:
                self._look_behind_hooks(saved, module)
                continue
            for tensor in plain_tensors(data):
                key = storage_key(tensor)
                owner = excluded.get(key)
                if owner is None:
                    self._keep(tensor, key, module)
                elif owner != OUTSIDE and any(self._is_beyond(next_node, owner) for next_node in following):
                    # A frozen weight is kept for one purpose: to pass the gradient on to the operation's input. This also
                    # tells of modules that never run themselves, such as the output projection of nn.MultiheadAttention.
                    facts.passing.add(owner)

    def _keep(self, tensor: torch.Tensor, key: int, module: int) -> None:
        facts = self._facts
        if key in facts.storages or is_number(tensor) or self._known.home not in (None, tensor.device):
            return
        storage = tensor.untyped_storage()
        size = facts.storages[key] = storage.nbytes()
        facts.references[key] = weakref.ref(storage)
        facts.total += size
        facts.by_module[module] = facts.by_module.get(module, 0) + size

    def _look_behind_hooks(self, saved: Any, module: int) -> None:
        """A saved tensor is hooked (or already freed): what stands in for it, where those hooks are known ones."""
        facts = self._facts
        facts.hooked += 1
        frame = checkpoint_frame(saved)
        if frame is not None:
            self._frames.setdefault(id(frame), (frame, set()))[1].add(module)
            facts.regions.holders[id(holder_of(saved))] = module
            facts.regions.recomputed[module] = None
        copy = copy_on_host(saved)
        for tensor in plain_tensors(copy) if copy is not None else ():
            key, storage = storage_key(tensor), tensor.untyped_storage()
            facts.offloaded[key] = storage.nbytes()
            facts.references[key] = weakref.ref(storage)

    def _count_reentrant(self, node: GraphNode, module: int) -> None:
        number = number_of(node)
        around = self._around(self._trace.entered_within(number, module) or {module})
        self._facts.regions.reentrant[number] = around
        self._facts.regions.recomputed[around] = None
        data = (saved_data(saved) for saved in saved_tensors(node))
        self._keep_inputs((tensor for tensor in data if tensor is not None), around)

    def _keep_inputs(self, tensors: Iterable[torch.Tensor], module: int) -> None:
        regions = self._facts.regions
        sizes: dict[int, int] = {}
        for tensor in (plain for given in tensors for plain in plain_tensors(given)):
            key = storage_key(tensor)
            if key not in self._known.excluded and not is_number(tensor):
                storage = tensor.untyped_storage()
                sizes[key] = storage.nbytes()
                regions.kept[key] = weakref.ref(storage)
                self._keep(tensor, key, module)
        inputs = regions.inputs
        inputs[module] = inputs.get(module, 0) + sum(sizes.values())

    def _around(self, modules: set[int]) -> int:
        """The innermost module that all of these are within."""
        chains = [self._chain(module) for module in modules]
        shared = set.intersection(*(set(chain) for chain in chains))
        return next((module for module in chains[0] if module in shared), OUTSIDE)

    def _chain(self, module: int) -> list[int]:
        chain = [module]
        while 0 <= chain[-1] < len(self._known.parents):
            chain.append(self._known.parents[chain[-1]])
        return chain

    def _is_beyond(self, node: GraphNode, module: int) -> bool:
        """Whether this is an operation, or a parameter that is not the module's own."""
        leaf = leaf_of(node)
        return leaf is None or self._known.leaves.get(id(leaf), _UNKNOWN).module != module

    def _owner(self, node: GraphNode) -> int:
        leaf = leaf_of(node)
        if leaf is None:
            return self._trace.module_of(number_of(node))
        return self._known.leaves.get(id(leaf), _UNKNOWN).module

    def _follow(self) -> None:
        """Where the gradient goes from each module, and a parameter of another one that it reaches through it.

        An operation is recorded after those whose results it takes, so in the order of their numbers every node comes after
        what it leads to. Two parameters of different modules are carried along, so that one of them is another module's.
        """
        reached: dict[GraphNode, tuple[Leaf, ...]] = {}
        upstream, edges = self._facts.upstream, self._facts.edges
        places: dict[GraphNode, int] = {}
        for _, node, module, following in sorted(self._visited, key=_number):
            found: tuple[Leaf, ...] = ()
            places[node] = module
            for next_node in following:
                leaf = leaf_of(next_node)
                own = self._known.leaves.get(id(leaf), _UNKNOWN) if leaf is not None else None
                edges.add((module, places.get(next_node, OUTSIDE) if own is None else own.module))
                beyond = reached.get(next_node, ()) if own is None else (own,)
                for each in beyond:
                    if each.parameter >= 0 and len(found) < 2 and all(each.module != other.module for other in found):
                        found += (each,)
            reached[node] = found
            for each in found:
                if each.module != module:
                    upstream[module] = each.parameter
                    break


_UNKNOWN = Leaf(-1, OUTSIDE)

NOTHING_KEPT = GraphFacts()
"""Autograd keeps nothing. Not to be changed."""


def _number(visited: tuple[int, GraphNode, int, list[GraphNode]]) -> int:
    return visited[0]
