"""What a walk over autograd's graph needs to know of the models' tensors, and its results. Numbers and weak references."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.probe.model import Leaf
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.private_names import has_gradient_hooks


class Part(NamedTuple):
    """A parameter over a part of a storage."""

    bytes: range
    """Within the storage."""
    module: int
    """The index of its owner."""
    is_frozen: bool


@dataclass(frozen=True)
class KnownTensors:
    """What the walk needs to know about the models' tensors, by identity. Modules are given by index."""

    excluded: Mapping[int, int]
    """Storage key -> module, for tensors that may be saved without being activations: the owner of a frozen parameter,
    OUTSIDE for trainable parameters and buffers."""
    leaves: Mapping[int, Leaf]
    """Trainable parameters by `id()`."""
    devices: Container[torch.device] | None = None
    """The devices whose tensors are counted; None counts all devices."""
    parents: Sequence[int] = ()
    """Parent index of each module, -1 if there is none."""
    shared: Mapping[int, Sequence[Part]] = field(default_factory=dict)
    """Storage key -> the parameters over it, where there are several."""


class HiddenRegion(NamedTuple):
    """A reentrant checkpoint: a single operation in the graph for everything that its modules did."""

    module: int
    """The module whose code called the checkpoint."""
    entered: frozenset[int]
    """The modules that ran in the checkpoint."""
    leads_on: bool
    """Whether the gradient passes from it to another operation or to a parameter."""


@dataclass
class Regions:
    """Checkpointed regions of one graph: parts of the forward that backward recomputes."""

    modules: set[int] = field(default_factory=set)
    """The modules that ran in regions."""
    inputs: dict[int, int] = field(default_factory=dict)
    """Module -> bytes that its regions keep, under the innermost module that contains the whole region."""
    recomputed: dict[int, int | None] = field(default_factory=dict)
    """Module -> bytes that backward has recomputed so far and that would otherwise have been kept; None until a recomputation
    was seen. For a reentrant region, the module is the innermost one that contains the whole region."""
    holders: ByIdentity[object, int] = field(default_factory=ByIdentity)
    """Placeholder of a saved tensor -> the module whose operation would have saved the tensor."""
    kept: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """Storage key -> storage of `inputs`, as long as it is alive: backward frees the storages of one region and reuses their
    memory."""
    reentrant: dict[int, int] = field(default_factory=dict)
    """Sequence number of a reentrant region's node -> module."""
    hidden: dict[int, HiddenRegion] = field(default_factory=dict)
    """Sequence number of a reentrant region's node -> the region's saved tensors before backward runs it again."""


@dataclass(frozen=True)
class ToInputs:
    """The operations whose gradient leads only to tensors that are no parameters."""

    inputs: tuple[weakref.ref[torch.Tensor], ...]
    modules: frozenset[int]
    """The modules that have these operations."""
    bytes: int
    """What autograd keeps for these operations alone."""


class UnknownLeaf(NamedTuple):
    """A tensor that requires a gradient, is no result of an operation, and is no parameter of the models."""

    tensor: weakref.ref[torch.Tensor]
    is_joined: bool
    """Whether an operation outside of modules takes what comes of it together with what parameters of the models led to."""


@dataclass
class GraphSummary:
    """Results of one walk. Bytes count each storage once and exclude parameters and buffers."""

    total: int = 0
    by_module: dict[int, int] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    """Modules with operations in the graph."""
    passing: set[int] = field(default_factory=set)
    """Modules through which a gradient passes on to something outside them."""
    opaque: set[int] = field(default_factory=set)
    """Modules with an operation that represents the code of several modules, such as a compiled region. Reentrant checkpoints
    are in `regions`."""
    upstream: dict[int, int] = field(default_factory=dict)
    """Module -> index of a trainable parameter whose gradient is computed through the module: the reason why autograd keeps
    more there than the module's own parameters need. It is the one that is fewest operations away from the end of forward."""
    edges: set[tuple[int, int]] = field(default_factory=set)
    """(module, module) pairs where a gradient passes from an operation of one to an operation or parameter of the other."""
    storages: dict[int, int] = field(default_factory=dict)
    """Storage key -> bytes of what `total` counts. Only numbers: they mean nothing once the graph is freed."""
    saved_by: dict[int, int] = field(default_factory=dict)
    """Storage key -> the module whose operation saved it first, for `storages`."""
    offloaded: dict[int, int] = field(default_factory=dict)
    """Storage key -> bytes of the copies that `save_on_cpu` keeps instead of what the operations would have saved."""
    references: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """Storage key -> storage, as long as it is alive, for `storages` and `offloaded`: a graph that is kept keeps all of them.
    """
    operations: int = 0
    """Operations that the walk visited."""
    earlier_operations: int = 0
    """Those of them that were recorded before the first module call of this step."""
    to_inputs: ToInputs | None = None
    """What backward does only for inputs that require a gradient; None where there is nothing, or where it is needed."""
    unknown_leaves: Sequence[UnknownLeaf] = ()
    regions: Regions = field(default_factory=Regions)
    """The checkpointed regions."""
    is_whole: bool = True
    """False if another model ran in this step that is not in this graph: its own graph may be alive at the same time."""

    def alive(self, apart_from: Iterable[int]) -> GraphSummary:
        """Return the living storages of a graph that may be freed; none if others hold all of those (`apart_from`)."""
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
        """Return the summary with the storages of other graphs added."""
        return replace(self, storages={**self.storages, **storages}) if storages else self


NOTHING_KEPT = GraphSummary()
"""The summary of a graph that keeps nothing. Do not modify it."""


def is_plain_input(leaf: torch.Tensor) -> bool:
    """Return whether a leaf can be an input whose gradient is never read, so far: it has none yet, and no hooks."""
    return type(leaf) is torch.Tensor and not has_gradient_hooks(leaf) and leaf.grad is None
