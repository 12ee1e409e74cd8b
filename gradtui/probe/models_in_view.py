"""The models and optimizers that the probe reports on: found anew when something new is seen, described when changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns

from torch import nn
from torch.optim import Optimizer

from gradtui.probe import optimizer_membership as membership
from gradtui.probe.discovery import Discovery
from gradtui.probe.module_tree import ModuleTree, build
from gradtui.probe.run_clock import RunClock
from gradtui.protocol.events import Event, ModelsFound, OptimizersFound
from gradtui.protocol.vocabulary import OptimizerInfo

_SEARCH_SHARE = 0.005
"""A search for models scans every object Python tracks; it may take this share of the time."""


class ModelsInView:
    """The current tree, and the events that describe it. `changed` is called when the tree has been replaced."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock, changed: Callable[[], None]) -> None:
        self.tree = ModuleTree()
        self.discovery = Discovery()
        self._emit = emit
        self._clock = clock
        self._changed = changed
        self._described: tuple[OptimizerInfo, ...] = ()
        self._places: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._search_after = 0
        self.round_length = 1
        """How many optimizer steps one round of training takes: the live optimizers."""

    def live_optimizers(self) -> list[Optimizer]:
        """Every optimizer seen that is still alive."""
        return [optimizer for optimizer in self.discovery.optimizers() if optimizer is not None]

    def place_of(self, optimizer: Optimizer) -> int:
        """The place of an optimizer among all that were seen."""
        place = self._places.get(optimizer)
        if place is None:
            self.discovery.saw_optimizer(optimizer)
            place = next(i for i, known in enumerate(self.discovery.optimizers()) if known is optimizer)
            self._places[optimizer] = place
        return place

    def refresh(self, step: int, *, look_closer: bool = False) -> None:
        """Search again if something new was seen, or (`look_closer`) if a model is no longer what it was."""
        began = perf_counter_ns()
        stale = look_closer and not self.tree.is_current()
        if not (self.discovery.dirty or stale) or began < self._search_after:
            return
        tree = build(self.discovery.models())
        if not _same(tree, self.tree):
            self.tree = tree
            self._changed()
            self._emit(ModelsFound(self._clock.at(), step, tree.models, tree.modules, tree.parameters))
        self.describe_optimizers(step)
        ended = perf_counter_ns()
        self._search_after = ended + int((ended - began) / _SEARCH_SHARE) if self.tree.models else ended

    def describe_optimizers(self, step: int) -> None:
        """Report the optimizers if what they own has changed."""
        described = tuple(
            self._describe(optimizer, place) for place, optimizer in enumerate(self.discovery.optimizers())
        )
        self.round_length = max(1, len(self.live_optimizers()))
        if described != self._described:
            self._described = described
            self._emit(OptimizersFound(self._clock.at(), step, described))

    def _describe(self, optimizer: Optimizer | None, place: int) -> OptimizerInfo:
        if optimizer is None:
            known = self._described[place] if place < len(self._described) else None
            if known is None:
                return OptimizerInfo("freed", 0, (), 0)
            return replace(known, parameters=(), unknown_parameters=len(known.parameters) + known.unknown_parameters)
        places = [self.tree.owns(tensor) for tensor in membership.parameters(optimizer)]
        known_places = tuple(place for place in places if place is not None)
        unknown = len(places) - len(known_places)
        return OptimizerInfo(type(optimizer).__name__, len(optimizer.param_groups), known_places, unknown)

    def module_place(self, module: nn.Module) -> int | None:
        """The place of a live module in the tree."""
        return self.tree.module_index.get(id(module))


def _same(new: ModuleTree, old: ModuleTree) -> bool:
    return (
        new.module_index == old.module_index
        and new.parameter_index == old.parameter_index
        and new.parameters == old.parameters
        and new.models == old.models
    )
