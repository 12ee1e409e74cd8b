"""The models and optimizers that the probe reports on: found anew when something new is seen, described when changed.

Runs on the training thread.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns

from torch import nn
from torch.optim import Optimizer

from gradtui.no_collection import no_collection
from gradtui.probe.discovery import Discovery
from gradtui.probe.group_reader import read_groups
from gradtui.probe.joined_parameters import JoinedParameters
from gradtui.probe.module_tree import ModuleTree
from gradtui.probe.run_clock import RunClock
from gradtui.probe.torch_private import current_graph_task_id, is_being_traced, unseen_by_function_modes
from gradtui.probe.tree_builder import build
from gradtui.protocol.events import Event, GroupsRead, ModelsFound, OptimizersFound
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo

_SEARCH_NS = 250_000_000
_SEARCH_SHARE = 0.005
"""A search for models looks at every object Python tracks. Searches may take this long together, plus this share of the time:
a script that shows something new at every step is not searched at every step."""

_NEVER = -1
"""Stands for the backward passes before the first step of an optimizer: it is not known which ones serve it."""

_IDLE_STEPS = 25
"""An optimizer that took no part in so many executed steps (or two rounds, if they are longer) is not in use."""


class ModelNumbers:
    """A number for each root module, its own for good."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, weakref.ref[nn.Module]]] = {}
        self._next = itertools.count(1)

    def number(self, tree: ModuleTree) -> None:
        """Give the models of a new tree their numbers."""
        self._known = {key: known for key, known in self._known.items() if known[1]() is not None}
        tree.models = tuple(replace(model, number=self._of(tree.module_refs[model.root]())) for model in tree.models)

    def _of(self, root: nn.Module | None) -> int:
        known = self._known.get(id(root))
        if root is None or (known is not None and known[1]() is root):
            return known[0] if known is not None else 0
        self._known[id(root)] = found = (next(self._next), weakref.ref(root))
        return found[0]


class ModelsInView:
    """The current tree, and the events that describe it. `changed` is called when the tree has been replaced."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock, changed: Callable[[], None]) -> None:
        self.tree = ModuleTree()
        self.discovery = Discovery()
        self.joined = JoinedParameters(self.live_optimizers)
        """What commands have added to the optimizers."""
        self.found_at = 0
        """The step after which the present models were found."""
        self.round_length = 1
        """How many optimizer steps one round of training takes: the live optimizers."""
        self._numbers = ModelNumbers()
        self._emit = emit
        self._clock = clock
        self._changed = changed
        self._described: tuple[OptimizerInfo, ...] = ()
        self._groups: tuple[tuple[GroupSettings, ...], ...] = ()
        self._held: list[list[int]] = []
        self.steps_in_backward: bool | None = None
        """Whether an optimizer has stepped while backward was running; None as long as none has stepped."""
        self._stepped: dict[int, tuple[int, int]] = {}
        """Place of an optimizer -> the number of the step it made last, and how many backward passes had ended by then.

        One that has not stepped yet counts from the step after which it was first seen.
        """
        self._began = perf_counter_ns()
        self._searched_ns = 0

    def live_optimizers(self) -> list[Optimizer]:
        """Every optimizer seen that is still alive."""
        return [optimizer for optimizer in self.discovery.optimizers() if optimizer is not None]

    def optimizers_in_use(self) -> list[list[Optimizer]]:
        """The live optimizers that took part in the latest steps, those together that step after one and the same backward.

        Before the first step all of them are together: it cannot be told yet.
        """
        latest = max((step for step, _ in self._stepped.values()), default=0)
        idle = max(_IDLE_STEPS, 2 * self.round_length)
        together: dict[int, list[Optimizer]] = {}
        for place, optimizer in enumerate(self.discovery.optimizers()):
            step, backwards = self._stepped.get(place, (-idle, _NEVER))
            if optimizer is not None and latest - step < idle:
                together.setdefault(backwards, []).append(optimizer)
        return list(together.values()) or [self.live_optimizers()]

    def stepped(self, optimizer: Optimizer, step: int, backwards: int) -> int:
        """An optimizer has made this step, after so many backward passes; its place among all that were seen."""
        place = self.discovery.saw_optimizer(optimizer)
        self._stepped[place] = (step, backwards)
        self.steps_in_backward = bool(self.steps_in_backward) or current_graph_task_id() != -1
        return place

    def refresh(self, step: int, *, look_closer: bool = False, at_any_cost: bool = False) -> None:
        """Search again if something new was seen, or (`look_closer`) if a model is no longer what it was.

        What searches have cost so far may put it off, unless it is wanted `at_any_cost`.
        """
        if not (self.discovery.dirty or look_closer) or is_being_traced():
            return
        with unseen_by_function_modes():
            if self.discovery.dirty or not self.tree.is_current():
                self._search_within_budget(step, at_any_cost=at_any_cost)
            elif self._holdings() != self._held:
                self.describe_optimizers(step)

    def _search_within_budget(self, step: int, *, at_any_cost: bool) -> None:
        began = perf_counter_ns()
        if self._searched_ns > _SEARCH_NS + _SEARCH_SHARE * (began - self._began) and not at_any_cost:
            return
        try:
            with no_collection():
                self._search(step)
        finally:
            self._searched_ns += perf_counter_ns() - began

    def _search(self, step: int) -> None:
        for place in self.discovery.take_new():
            self._stepped[place] = (step, _NEVER)
        listed = {id(module) for _, module in self.tree.live_modules()}
        tree = build(self.discovery.models(listed))
        if tree.is_borrowed:
            self.discovery.dirty = True
            return
        self._numbers.number(tree)
        if not tree.is_same(self.tree):
            self.tree, self.found_at = tree, step
            self._changed()
            self._emit(ModelsFound(self._clock.at(), step, tree.models, tree.modules, tree.parameters, tree.buffers))
        self.describe_optimizers(step)

    def describe_optimizers(self, step: int) -> None:
        """Report the optimizers if what they own has changed."""
        described = tuple(
            self._describe(optimizer, place) for place, optimizer in enumerate(self.discovery.optimizers())
        )
        self.round_length = max(1, len(self.live_optimizers()))
        self._held = self._holdings()
        if described != self._described:
            self._described = described
            self._emit(OptimizersFound(self._clock.at(), step, described))

    def read_groups(self, step: int) -> None:
        """Report what the groups are set to, if that has changed."""
        groups = read_groups(self.discovery.optimizers())
        if groups != self._groups:
            self._groups = groups
            self._emit(GroupsRead(self._clock.at(), step, groups))

    def _holdings(self) -> list[list[int]]:
        """How many parameters each group of each optimizer has: enough to tell that a script has added some."""
        return [
            [len(group["params"]) for group in o.param_groups] if o is not None else []
            for o in self.discovery.optimizers()
        ]

    def _describe(self, optimizer: Optimizer | None, place: int) -> OptimizerInfo:
        if optimizer is None:
            known = self._described[place] if place < len(self._described) else None
            if known is None:
                return OptimizerInfo("freed", 0, (), 0)
            unknown = len(known.parameters) + known.unknown_parameters
            return replace(known, parameters=(), unknown_parameters=unknown, group_of=())
        places = [
            (self.tree.owns(tensor), number)
            for number, group in enumerate(optimizer.param_groups)
            for tensor in group["params"]
        ]
        listed = [(owned, number) for owned, number in places if owned is not None]
        return OptimizerInfo(
            type(optimizer).__name__,
            len(optimizer.param_groups),
            tuple(owned for owned, _ in listed),
            len(places) - len(listed),
            tuple(number for _, number in listed),
        )
