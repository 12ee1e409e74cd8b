"""Hold the models and optimizers that the probe reports on; list them again after a discovery, and report changes.

Runs on the training thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns, thread_time_ns

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.model.added_parameters import AddedParameters
from gradtui.probe.model.discovery import Discovery
from gradtui.probe.model.index_mapping import IndexMapping
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.model.param_groups import GroupWatch
from gradtui.probe.model.tree_builder import build
from gradtui.probe.runtime import ByIdentity, RunClock
from gradtui.probe.torch_private.private_names import current_graph_task_id, is_being_traced
from gradtui.protocol.events import Event, ModelsFound, OptimizersFound
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.system.no_collection import no_collection

_SEARCH_NS = 250_000_000
_SEARCH_SHARE = 0.005
"""Time limits in nanoseconds and as a share of the run. A search for models examines every object that Python tracks. All
searches together may take the constant plus the share of the elapsed time, so that a script that adds a module at every
step is not searched at every step. The same limits hold for listings without a search."""

_MIN_LISTING_NS = 20_000_000
"""The least time that a listing counts: where it finds a new model, the next steps are sampled."""

_LARGE_S = 0.1
"""Models are large if building their tree took longer than this, in seconds: some ten thousand modules and parameters."""

_NEVER = -1
"""Stands for the backward passes before an optimizer's first step: which of them serve it is unknown."""

_IDLE_STEPS = 25
"""An optimizer that took no part in this many executed steps (or two rounds, if they are longer) is not in use."""


class ModelRegistry:
    """Holds the current tree, and emits the events that describe it. `changed` is called when the tree has been replaced.

    `regrouped` is called when an optimizer was found, or owns other parameters than before.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        clock: RunClock,
        changed: Callable[[IndexMapping], None],
        regrouped: Callable[[], None] = lambda: None,
    ) -> None:
        self.tree = ModuleTree()
        self.discovery = Discovery()
        self.joined = AddedParameters(self.live_optimizers)
        """The parameters that commands have added to optimizers."""
        self.found_at = 0
        """The step after which the present models were found."""
        self.round_length = 1
        """The number of optimizer steps in one round of training: that of the live optimizers."""
        self._numbers: ByIdentity[object, int] = ByIdentity()
        """Each root module keeps its number for good."""
        self._next_number = itertools.count(1)
        self._listings = itertools.count(1)
        self._emit = emit
        self._clock = clock
        self._changed = changed
        self._regrouped = regrouped
        self._described: tuple[OptimizerInfo, ...] = ()
        self._sizes: list[list[int]] = []
        """The sizes of the groups of each optimizer, as last described."""
        self.groups = GroupWatch(emit, clock, self.discovery.optimizers.groups)
        self.steps_in_backward: bool | None = None
        """Whether an optimizer has stepped while backward was running; None as long as none has stepped."""
        self._stepped: dict[int, tuple[int, int]] = {}
        """Index of an optimizer -> the number of its latest step, and the number of backward passes that had ended by then.

        An optimizer that has not stepped yet counts from the step after which it was found.
        """
        self._began = perf_counter_ns()
        self._searched_ns = self._listed_ns = 0
        self.spent_ns = 0
        """What all listings together have taken, in nanoseconds."""
        self.building_s = 0.0
        """CPU seconds that it took to build the newest tree."""
        self.is_large = False
        """The current models are large: a sample of one of their steps takes long, and a memory profile of it even longer."""

    def lists(self, module: object) -> bool:
        """Return whether a module or parameter is listed. Called at each registration, so it must be quick."""
        return self.tree.index_of(module) >= 0 or self.tree.owns(module) is not None

    def registered(self, holder: nn.Module) -> None:
        """Handle the registration of a module or parameter with `holder`. One of the two is listed."""
        if self.tree.index_of(holder) >= 0:
            self.discovery.dirty = True
        else:
            # A listed module has become part of another one, which is a model only once it is used.
            self.discovery.needs_search = True

    def live_optimizers(self) -> list[Optimizer]:
        """Return every registered optimizer that is still alive."""
        return [optimizer for optimizer in self.discovery.optimizers.all() if optimizer is not None]

    def optimizers_in_use(self) -> list[list[Optimizer]]:
        """Return the live optimizers that took part in the latest steps, grouped by the backward after which they step.

        Before the first step all of them are in one group, since this is not known yet.
        """
        latest = max((step for step, _ in self._stepped.values()), default=0)
        idle = max(_IDLE_STEPS, 2 * self.round_length)
        together: dict[int, list[Optimizer]] = {}
        for index, optimizer in enumerate(self.discovery.optimizers.all()):
            step, backwards = self._stepped.get(index, (-idle, _NEVER))
            if optimizer is not None and latest - step < idle:
                together.setdefault(backwards, []).append(optimizer)
        return list(together.values()) or [self.live_optimizers()]

    def stepped(self, optimizer: Optimizer, step: int, backwards: int) -> int:
        """Record a step of an optimizer after `backwards` backward passes; return its index among all registered ones."""
        index = self.discovery.register_optimizer(optimizer)
        self._stepped[index] = (step, backwards)
        self.steps_in_backward = bool(self.steps_in_backward) or current_graph_task_id() != -1
        return index

    def refresh(self, step: int, *, verify: bool = False, at_any_cost: bool = False) -> None:
        """List the models again after a discovery, or (`verify`) if a model has changed.

        If listings have used up their time limit, it is put off to a later call, unless it is wanted `at_any_cost`.
        """
        if not (self.discovery.dirty or verify) or is_being_traced():
            return
        may_search = at_any_cost or self._may_search
        is_due = self.discovery.dirty or (self.discovery.needs_search and may_search) or not self.tree.is_current()
        if is_due and (at_any_cost or self._is_within(self._listed_ns)):
            self._list_within_budget(step, may_search=may_search)
        elif not is_due and self.discovery.optimizers.sizes() != self._sizes:
            self.describe_optimizers(step)

    def reconcile(self, step: int) -> None:
        """List at the end of the run what was found and not listed, regardless of the cost. Freed objects stay listed."""
        if is_being_traced() or self.tree.is_gone():
            return
        is_complete = not (self.discovery.dirty or self.discovery.needs_search) and self.tree.is_current(freed=True)
        if not is_complete:
            spent_ns = self.spent_ns
            self._list_within_budget(step, may_search=True)
            # No step has waited for it, and it is in no hook.
            self.spent_ns = spent_ns
        self.describe_optimizers(step, at_end=True)

    @property
    def _may_search(self) -> bool:
        return self._is_within(self._searched_ns)

    def _is_within(self, spent_ns: int) -> bool:
        return spent_ns < _SEARCH_NS + _SEARCH_SHARE * (perf_counter_ns() - self._began)

    def _list_within_budget(self, step: int, *, may_search: bool) -> None:
        began, searches = perf_counter_ns(), self.discovery.searches
        try:
            with no_collection():
                self._list(step, may_search=may_search)
        finally:
            took = perf_counter_ns() - began
            self.spent_ns += took
            if self.discovery.searches > searches:
                self._searched_ns += took
            else:
                self._listed_ns += max(took, _MIN_LISTING_NS)

    def _list(self, step: int, *, may_search: bool) -> None:
        for index in self.discovery.optimizers.take_new():
            self._stepped[index] = (step, _NEVER)
        models = self.discovery.models(self.tree.live_ids(), may_search=may_search)
        # CPU time, so that a model is not called large because the machine is busy.
        began = thread_time_ns()
        tree = build(models)
        self.building_s = (thread_time_ns() - began) / 1e9
        self.is_large = self.building_s > _LARGE_S
        if tree.is_borrowed:
            self.discovery.dirty = True
            return
        tree.models = tuple(
            replace(model, number=self._number_of(tree.module_refs[model.root]())) for model in tree.models
        )
        if not tree.is_same(self.tree):
            tree.listing = next(self._listings)
            moved = IndexMapping.between(self.tree, tree)
            self.tree, self.found_at = tree, step
            self._changed(moved)
            listed = tree.models, tree.modules, tree.parameters, tree.buffers
            indices = moved.modules, moved.parameters
            compiled = tuple(sorted(tree.compiled))
            self._emit(ModelsFound(self._clock.at(), step, *listed, *indices, compiled, listing=tree.listing))
        self.describe_optimizers(step)

    def _number_of(self, root: object) -> int:
        if root is None:
            # The model ended while it was listed.
            return 0
        number = self._numbers.get(root)
        if number is None:
            self._numbers.set(root, number := next(self._next_number))
        return number

    def describe_optimizers(self, step: int, *, at_end: bool = False) -> None:
        """Emit an event if the optimizers or their parameters have changed."""
        described = self.discovery.optimizers.describe(self.tree.indices, at_end=at_end)
        self.round_length = max(1, len(self.live_optimizers()))
        self._sizes = self.discovery.optimizers.sizes()
        if described != self._described:
            self._described = described
            self._regrouped()
            self._emit(OptimizersFound(self._clock.at(), step, described))
