"""Create the parts that follow the script's seldom calls, and have them report. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.script_calls.kept_states import KeptStates
from gradtui.probe.script_calls.module_loads import ModuleLoads, own_tensors
from gradtui.probe.script_calls.optimizer_states import OptimizerStates
from gradtui.probe.script_calls.remade_optimizers import RemadeOptimizers
from gradtui.probe.script_calls.resuming import Resuming
from gradtui.probe.script_calls.saved_contents import module_states
from gradtui.probe.script_calls.saved_trainings import path_of
from gradtui.probe.script_calls.schedulers import Schedulers
from gradtui.probe.steps import Epochs, HookEventBuffer, ProbeContext


class ScriptCallParts:
    """The parts of one probe that follow the script's seldom calls."""

    def __init__(self, context: ProbeContext, buffer: HookEventBuffer, epochs: Epochs) -> None:
        self._hooks = context.hooks
        self.loads = ModuleLoads(context)
        self.schedulers = Schedulers(context, lambda: epochs.passes_at(context.counter.steps))
        self._steps: Callable[[], int] = lambda: context.counter.steps + buffer.steps
        self.kept = KeptStates(context, self._steps)
        self.states = OptimizerStates(context)
        self.resuming = Resuming(context, self.loads, self.schedulers, self._steps)
        self.remade = RemadeOptimizers(context, lambda: self.loads.calls)
        self._all = (self.loads, self.kept, self.states, self.remade, self.schedulers)
        self.is_due = False
        """Whether there was a call that may have something to report in later steps."""
        self._own: list[str] = []
        """The keys for which the present call of `load_state_dict` was given the module's own tensors, as they were."""

    def module_load_begins(self, module: nn.Module, given: Any) -> None:
        """Handle the start of `Module.load_state_dict`."""
        self.is_due = True
        own, are_all = own_tensors(module, given)
        # Later it is no filter of a checkpoint that has left them: a script that loads the best state goes back to its own.
        self._own = own if own and not self._steps() and self.kept.is_as_made(given) else []
        self.kept.loading(module, given, are_own=are_all)

    def module_load_ended(self, module: nn.Module, given: Any, result: Any) -> None:
        """Handle its end, with what it returned."""
        self.loads.ended(module, given, list(result.missing_keys), list(result.unexpected_keys), self._own)

    def module_state_made(self, module: nn.Module, state: Any) -> None:
        """Handle the end of `Module.state_dict`."""
        self.is_due = True
        self.kept.made(module, state)

    def saving(self, saved: Any, file: Any, *, is_sorted: bool = False) -> None:
        """Handle the start of `torch.save`, or of a function whose file does not keep the order of names (`is_sorted`)."""
        self.kept.saving(saved)
        with self._hooks.guarded("resumed run"):
            self.resuming.saving(saved, file, is_sorted=is_sorted)

    def loaded(self, loaded: Any, file: Any, *, in_place: bool = False) -> None:
        """Handle the end of `torch.load`, or with `in_place` of a function that writes into tensors which it was given."""
        if in_place:
            self.kept.overwritten(loaded)
        if isinstance(loaded, Mapping):
            with self._hooks.guarded("calls of the script"):
                self.loads.file_read(path_of(file), module_states(loaded))
        with self._hooks.guarded("resumed run"):
            self.resuming.loaded(loaded, file, is_sorted=in_place)

    def optimizer_state_made(self, optimizer: Optimizer, state: Any) -> None:
        """Handle the end of `Optimizer.state_dict`."""
        self.states.saved(optimizer, state)

    def optimizer_loading(self, optimizer: Optimizer, state: Any) -> None:
        """Handle the start of `Optimizer.load_state_dict`."""
        self.is_due = True
        with self._hooks.guarded("calls of the script"):
            self.remade.loaded(optimizer)
            names = self.resuming.optimizer_loading(optimizer, state)
            self.states.loading(optimizer, state, names)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Handle the construction of an optimizer."""
        with self._hooks.guarded("calls of the script"):
            self.remade.made(optimizer)
            self.schedulers.optimizer_made(optimizer)
            self.is_due |= self.remade.are_many

    def scheduler_made(self, now: int, scheduler: Any) -> None:  # noqa: ARG002
        """Handle the construction of a learning rate scheduler."""
        self.is_due = True
        self.schedulers.made(scheduler)

    def report(self) -> None:
        """Emit what is known by now. Call it between steps."""
        for part in self._all:
            with self._hooks.guarded("calls of the script"):
                part.report()
