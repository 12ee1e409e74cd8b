"""Decide whether a gradient passes through the module of a frozen parameter, from the graphs of one step.

A frozen parameter leaves no node in autograd's graph, and adding it to a tensor saves nothing. So "no" needs evidence: the
module ran as a module call, and none of its operations is in the graph. Without that evidence the answer is None.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import cached_property

from torch import nn

from gradtui.probe.autograd.gradient_flow import GraphsOfStep, is_hidden
from gradtui.probe.model import ModuleTree
from gradtui.protocol.vocabulary import StateReason

_NO_FORWARD = getattr(nn.Module, "forward", None)
"""The `forward` of a container such as `nn.ParameterList`, which is never called."""

Answer = tuple[bool | None, StateReason]


class FlowThrough:
    """Decides for each module, and caches the answers."""

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
