"""Determine how far the gradient of a step came in the module tree: where backward ran, passed, ended, never went, and why.

Functions of what the walk over autograd's graph found, and of which modules ran in which grad mode. They are called on
the training thread, at sampled steps.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import field
from functools import cached_property

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradtui.dataclass import dataclass
from gradtui.probe.autograd.graph_summary import GraphSummary, HiddenRegion
from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.model import ModuleTree, StorageCount
from gradtui.protocol.vocabulary import ENTERED, GradMode, Reach, StateReason


@dataclass
class GraphsOfStep:
    """The combined results of the graphs of all backward passes of one step."""

    active: set[int] = field(default_factory=set)
    passing: set[int] = field(default_factory=set)
    compiled: set[int] = field(default_factory=set)
    """Modules with an operation that represents the code of several modules and cannot be taken apart."""
    edges: set[tuple[int, int]] = field(default_factory=set)
    regions: dict[int, HiddenRegion] = field(default_factory=dict)
    """Reentrant checkpoints by the sequence number of their node, until their contents are known."""
    norms: dict[int, float] | None = None
    """Module -> L2 norm of the gradient at its output, in the last backward; only frozen modules are read. None if none could
    be read in this step."""

    @property
    def opaque(self) -> set[int]:
        """Modules with an operation that hides what several modules did."""
        return self.compiled | {region.module for region in self.regions.values()}

    def add(self, facts: GraphSummary) -> None:
        """Add the graph of one more backward."""
        self.active |= facts.active
        self.passing |= facts.passing
        self.compiled |= facts.opaque
        self.edges |= facts.edges
        self.regions |= facts.regions.hidden

    def add_region(self, number: int, inside: GraphSummary) -> None:
        """Add the graph that backward has made of a reentrant checkpoint."""
        region = self.regions.pop(number)

        def own(module: int) -> int:
            return region.module if module == OUTSIDE else module

        self.active |= set(map(own, inside.active))
        self.passing |= set(map(own, inside.passing))
        self.compiled |= set(map(own, inside.opaque))
        self.edges |= {(own(begin), own(end)) for begin, end in inside.edges}
        self.regions |= {
            key: hidden._replace(module=own(hidden.module)) for key, hidden in inside.regions.hidden.items()
        }

    def copy(self) -> GraphsOfStep:
        """Return a copy of the current results, without the norms."""
        return GraphsOfStep({*self.active}, {*self.passing}, {*self.compiled}, {*self.edges}, {**self.regions})


def reach_letters(tree: ModuleTree, graphs: GraphsOfStep, trace: ModuleCallLog, evaluated: Iterable[int]) -> str:
    """Return a `Reach` letter for each module with its submodules. Roots `evaluated` between steps ran, with all in them."""
    entered = tree.with_ancestors(graphs.active | graphs.passing | {index for _, index in graphs.edges})
    # A module of a frozen weight that another module's operation uses (the output projection of nn.MultiheadAttention).
    used = graphs.passing - graphs.active
    # Backward ends nowhere in a module all of whose weights are used by operations of others.
    through = _left(graphs.edges, tree) | used | (tree.with_ancestors(used) - tree.with_ancestors(graphs.active))
    ran, opaque = tree.with_ancestors(trace.grad_modes), graphs.opaque
    for index in evaluated:
        if index not in entered:
            ran.update(range(index, index + tree.modules[index].subtree_modules))
    letters = []
    for index in range(len(tree.modules)):
        if index in tree.shared:
            reach = Reach.SHARED
        elif index in entered:
            reach = Reach.THROUGH if index in through else Reach.ENDS
        elif is_hidden(index, opaque, tree):
            reach = Reach.UNKNOWN
        else:
            reach = Reach.NOT_ENTERED if index in ran else Reach.NOT_RUN
        letters.append(reach.value)
    return "".join(letters)


def _left(edges: Iterable[tuple[int, int]], tree: ModuleTree) -> set[int]:
    """Return the modules that some edge leads out of, counting edges from their submodules."""
    left: set[int] = set()
    for begin, end in edges:
        around = set(tree.around(end))
        for module in tree.around(begin):
            if module in around:
                break
            left.add(module)
    return left


def is_hidden(module: int, opaque: set[int], tree: ModuleTree) -> bool:
    """Return whether a module's operations may be inside an operation that represents the code of several modules."""
    return bool(opaque) and (OUTSIDE in opaque or any(index in opaque for index in tree.around(module)))


def grad_mode_letters(tree: ModuleTree, called: Mapping[int, str], evaluated: Mapping[int, str], reach: str) -> str:
    """Return a `GradMode` letter for each module, from the modules `called` in a step and the roots `evaluated`."""
    letters: list[str] = []
    for index, module in enumerate(tree.modules):
        own = called.get(index) or evaluated.get(index)
        above = letters[module.parent] if module.parent >= 0 else GradMode.NOT_RUN.value
        if reach and reach[index] == Reach.UNKNOWN.value:
            # A reentrant checkpoint at first runs its modules under no_grad, which says nothing about backward.
            own = GradMode.UNKNOWN.value
        elif reach and reach[index] in ENTERED:
            own = GradMode.GRAD.value
        letters.append(own or above)
    return "".join(letters)


def gradient_bytes(tree: ModuleTree, device_type: str) -> tuple[int, ...]:
    """Return the bytes that `.grad` holds, for each model."""
    gradients: dict[int, list[torch.Tensor]] = {model.root: [] for model in tree.models}
    roots, owners = tree.roots, tree.owners
    for index, tensor in tree.live_parameters():
        gradient = tensor.grad if tensor.is_leaf else None
        if gradient is not None:
            gradients[roots[owners[index]]].append(gradient)
    return tuple(StorageCount(device_type).add(each) for each in gradients.values())


def training_flags(tree: ModuleTree) -> str:
    """Return `Module.training` of each module as "1" or "0"; "-" for a module that no longer exists.

    "h" is for a BatchNorm in train mode that holds its running statistics: its `track_running_stats` was switched off later,
    so that its forward leaves them alone (torch/nn/modules/batchnorm.py). InstanceNorm moves them all the same.
    """
    flags = ["-"] * len(tree.modules)
    for index, module in tree.live_modules():
        holds = not module.__dict__.get("track_running_stats", True) and isinstance(module, _BatchNorm)
        flags[index] = ("h" if holds else "1") if module.training else "0"
    return "".join(flags)


_NO_FORWARD = getattr(nn.Module, "forward", None)
"""The `forward` of a container such as `nn.ParameterList`, which is never called."""

Answer = tuple[bool | None, StateReason]


class FlowThrough:
    """Decides whether a gradient passes through the module of a frozen parameter, and caches the answers.

    A frozen parameter leaves no node in autograd's graph, and adding it to a tensor saves nothing. So "no" needs evidence: the
    module ran as a module call, and none of its operations is in the graph. Without that evidence the answer is None.
    """

    def __init__(
        self, tree: ModuleTree, graphs: GraphsOfStep, called: Container[int], evaluated: Iterable[int]
    ) -> None:
        """Create it from the modules `called` in the step and the `evaluated` ones, whose whole subtree ran between steps."""
        self._tree = tree
        self._graphs = graphs
        self._called = called
        self._ran_between = evaluated
        self._opaque = graphs.opaque
        self._known: dict[int, Answer] = {}

    @cached_property
    def _entered(self) -> set[int]:
        """The modules that backward enters, and their ancestors."""
        return self._tree.with_ancestors(self._graphs.active | self._graphs.passing)

    @cached_property
    def _evaluated(self) -> set[int]:
        return {index for index in self._ran_between if index not in self._entered}

    def through(self, module: int) -> Answer:
        """Return whether a gradient passes through this module to something outside it, and why that is unknown (None)."""
        answer = self._known.get(module)
        if answer is None:
            answer = self._known[module] = self._find(module)
        return answer

    def _find(self, module: int) -> Answer:
        graphs = self._graphs
        if module in graphs.passing:
            return True, StateReason.NONE
        if module in graphs.active:
            return False, StateReason.NONE
        if any(region.leads_on and module in region.entered for region in graphs.regions.values()):
            return True, StateReason.NONE
        if is_hidden(module, self._opaque, self._tree):
            return None, StateReason.HIDDEN
        if module in self._called or any(index in self._evaluated for index in self._tree.around(module)):
            return False, StateReason.NONE
        parent = self._tree.parents[module]
        if parent >= 0 and self._is_container(module):
            return self.through(parent)
        return self._by_caller(parent)

    def _by_caller(self, module: int) -> Answer:
        """Return the answer for a module that was not called: the code of its nearest called ancestor may have used it."""
        for index in self._tree.around(module):
            if index in self._entered:
                break
            if index in self._called:
                return False, StateReason.NONE
        return None, StateReason.NOT_CALLED

    def _is_container(self, module: int) -> bool:
        live = self._tree.module_refs[module]()
        return live is not None and getattr(type(live), "forward", None) is _NO_FORWARD and "forward" not in vars(live)
