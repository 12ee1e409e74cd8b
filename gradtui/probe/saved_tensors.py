"""What autograd keeps for backward, read from its graph without changing it.

At the beginning of a backward the graph is walked from the tensors backward was called on. Saved tensors are read through
`_raw_saved_*`, which neither runs hooks nor unpacks; `saved_tensors_hooks` would count the same bytes but switch off
autograd's in-place check. Each node carries the sequence number it was made with, and the module wrapper notes that number
at entry and exit of each module, so a bisection tells which module's operation a node is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from gradtui.probe.torch_private import GraphNode, saved_data, saved_tensors, sequence_number, storage_key

OUTSIDE = -1
"""The module index of operations outside any known module."""


@dataclass
class ModuleTrace:
    """Where modules began and ended during a forward, in autograd's own numbering.

    `numbers[i]` is the sequence number at the i-th boundary and `modules[i]` the module whose code runs from there on.
    """

    numbers: list[int] = field(default_factory=list)
    modules: list[int] = field(default_factory=list)
    ran: set[int] = field(default_factory=set)
    _open: list[int] = field(default_factory=list)

    def entered(self, module: int) -> None:
        """A module's forward begins."""
        self._open.append(module)
        self.ran.add(module)
        self._mark(module)

    def left(self) -> None:
        """The innermost module's forward ends."""
        if self._open:
            self._open.pop()
        self._mark(self._open[-1] if self._open else OUTSIDE)

    def _mark(self, module: int) -> None:
        self.numbers.append(sequence_number())
        self.modules.append(module)

    def module_of(self, number: int) -> int:
        """The module whose code made the node with this sequence number."""
        place = bisect_right(self.numbers, number) - 1
        return self.modules[place] if place >= 0 else OUTSIDE


@dataclass
class GraphFacts:
    """What one walk found. Bytes count each storage once; parameters and buffers are left out."""

    total: int = 0
    by_module: dict[int, int] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    """id() of every leaf tensor that this backward accumulates a gradient into."""
    passing: set[int] = field(default_factory=set)
    """Modules through which a gradient passes on to something outside them."""
    nodes: int = 0
    hooked: int = 0
    """Saved tensors behind hooks (checkpointing, offloading), whose bytes are not known from here."""


def walk(
    roots: Iterable[torch.Tensor], trace: ModuleTrace, excluded: set[int], owners: Mapping[int, int]
) -> GraphFacts:
    """Walk the graph that a backward on `roots` would run through.

    `excluded` holds `untyped_storage()._cdata` of storages that are not activations (parameters, buffers), `owners` the
    module that each parameter, by id(), belongs to. Nothing of the graph is kept.
    """
    facts = GraphFacts()
    counted = set(excluded)
    waiting: list[GraphNode] = [root.grad_fn for root in roots if root.grad_fn is not None]
    # Nodes are kept in `seen` while walking, because autograd makes their Python objects anew and reuses addresses.
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            facts.reached.add(id(leaf))
            continue
        facts.nodes += 1
        module = trace.module_of(node._sequence_nr())  # noqa: SLF001 - the graph's public API has no number
        _count(node, module, counted, facts)
        for following, _ in node.next_functions:
            if following is None:
                continue
            if module not in facts.passing and _owner(following, trace, owners) != module:
                facts.passing.add(module)
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return facts


def _owner(node: GraphNode, trace: ModuleTrace, owners: Mapping[int, int]) -> int:
    leaf = getattr(node, "variable", None)
    if leaf is not None:
        return owners.get(id(leaf), OUTSIDE)
    return trace.module_of(node._sequence_nr())  # noqa: SLF001


def _count(node: GraphNode, module: int, counted: set[int], facts: GraphFacts) -> None:
    for saved in saved_tensors(node):
        data = saved_data(saved)
        if data is None:
            facts.hooked += 1
            continue
        key = storage_key(data)
        if key in counted:
            continue
        counted.add(key)
        size = data.untyped_storage().nbytes()
        facts.total += size
        facts.by_module[module] = facts.by_module.get(module, 0) + size
