"""What the models' tensors are to a walk over autograd's graph, and what one walk has found. Numbers and weak references."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from gradtui.probe.model import Leaf
from gradtui.probe.runtime import ByIdentity


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


class HiddenRegion(NamedTuple):
    """A reentrant checkpoint: one operation in place of all that its modules did."""

    module: int
    """Whose code called it."""
    entered: frozenset[int]
    """The modules that ran in it."""
    leads_on: bool
    """The gradient goes on from it to another operation or to a parameter."""


@dataclass
class Regions:
    """Checkpointed regions of one graph: parts of the forward that backward computes again."""

    inputs: dict[int, int] = field(default_factory=dict)
    """Module -> bytes that the region keeps, under the innermost module that all of it is within."""
    recomputed: dict[int, int | None] = field(default_factory=dict)
    """Module -> bytes that backward has computed again so far and would otherwise have been kept; None as long as that was
    not seen. A reentrant region's are under the innermost module that all of it is within."""
    holders: ByIdentity[object, int] = field(default_factory=ByIdentity)
    """What stands in for a saved tensor -> the module whose operation would have saved it."""
    kept: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """Storage key -> that storage as long as it is alive, of `inputs`: backward frees one region's and uses its memory anew."""
    reentrant: dict[int, int] = field(default_factory=dict)
    """Number of a reentrant region's node -> module."""
    hidden: dict[int, HiddenRegion] = field(default_factory=dict)
    """Likewise: what is known of it before backward runs it again."""


@dataclass
class GraphSummary:
    """What one walk found. Bytes count each storage once; parameters and buffers are left out."""

    total: int = 0
    by_module: dict[int, int] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    """Modules with operations in the graph."""
    passing: set[int] = field(default_factory=set)
    """Modules through which a gradient passes on to something outside them."""
    opaque: set[int] = field(default_factory=set)
    """Modules with an operation that stands for several modules' code, as a compiled region. Reentrant checkpoints are
    in `regions`."""
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

    def alive(self, apart_from: Iterable[int]) -> GraphSummary:
        """Of a graph that may be gone by now its living storages; nothing if those are all held by others, as some are."""
        alive = {key for key, reference in self.references.items() if reference() is not None}
        if len(alive) == len(self.references):
            return self
        alive -= set(apart_from)
        return GraphSummary(
            storages={key: size for key, size in self.storages.items() if key in alive},
            offloaded={key: size for key, size in self.offloaded.items() if key in alive},
            is_whole=self.is_whole,
        )

    def joined(self, storages: Mapping[int, int]) -> GraphSummary:
        """With what other graphs keep."""
        return replace(self, storages={**self.storages, **storages}) if storages else self

    def freed(self) -> GraphSummary:
        """What is kept once backward has freed this graph."""
        return GraphSummary(is_whole=self.is_whole)


NOTHING_KEPT = GraphSummary()
"""Autograd keeps nothing. Not to be changed."""
