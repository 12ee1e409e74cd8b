"""Find optimizers that are made anew after each step or two, for the same parameters. Runs on the training thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch.optim import LBFGS, SGD, Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.script_calls.sites import site_of
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import OptimizersRemade

_SHORT = 2
"""Steps of an optimizer that was replaced at once."""
_MIN = 5


@dataclass
class _Life:
    """The newest optimizer of a parameter, and those before it."""

    optimizer: weakref.ref[Optimizer]
    index: int
    steps_before: int
    """Steps that were counted under its index before it was made."""
    loads: int
    """Calls of `load_state_dict` of modules before it was made."""
    is_carried: bool = False
    """A state was loaded into it."""
    remade: int = 0
    longer: int = 0
    first_step: int = 0
    site: CallSite | None = None
    reported: int = 0


class RemadeOptimizers:
    """Follows which optimizer replaces which. `loads` returns the number of calls of `load_state_dict` of modules so far."""

    def __init__(self, context: ProbeContext, loads: Callable[[], int]) -> None:
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._index_of, self._loads = context.models.discovery.register_optimizer, loads
        self._lives: ByIdentity[torch.Tensor, _Life] = ByIdentity()
        self.are_many = False
        """Whether there is something to report."""

    def made(self, optimizer: Optimizer) -> None:
        """Note an optimizer that has been constructed."""
        first = _first_parameter(optimizer)
        if first is None:
            return
        index, known = self._index_of(optimizer), self._lives.get(first)
        steps, loads = self._counter.steps_of(index), self._loads()
        life = _Life(weakref.ref(optimizer), index, steps, loads)
        if known is not None:
            made = self._counter.steps_of(known.index) - known.steps_before - (known.index == index and steps)
            life.remade, life.longer, life.first_step = known.remade, known.longer, known.first_step
            life.site = known.site
            # A script that puts other weights into the model begins a new training.
            if (
                0 < made <= _SHORT
                and loads == known.loads
                and not known.is_carried
                and not isinstance(optimizer, LBFGS)
            ):
                life.remade += 1
                life.first_step = life.first_step or self._counter.steps
                life.site = life.site or site_of("optimizer")
            elif made > _SHORT:
                life.longer += 1
            life.reported = known.reported
        self._lives.set(first, life)
        if life.remade >= max(_MIN, 2 * life.reported):
            self.are_many = True
            # The optimizer may not live until the next report.
            self._tell(life, optimizer)

    def loaded(self, optimizer: Optimizer) -> None:
        """Note that a state was loaded into an optimizer."""
        first = _first_parameter(optimizer)
        if first is not None and (known := self._lives.get(first)) is not None and known.optimizer() is optimizer:
            known.is_carried = True

    def report(self) -> None:
        """Emit what is known by now."""
        for parameter in self._lives.living():
            life = self._lives.get(parameter)
            if life is not None and life.remade >= _MIN and (optimizer := life.optimizer()) is not None:
                self._tell(life, optimizer)

    def _tell(self, life: _Life, optimizer: Optimizer) -> None:
        if life.remade == life.reported:
            return
        life.reported = life.remade
        name, has_state = type(optimizer).__name__, _has_state(optimizer)
        at = self._clock.at(), self._counter.steps
        self._emit(OptimizersRemade(*at, name, life.remade, life.longer, has_state, life.first_step, life.site))


def _first_parameter(optimizer: Optimizer) -> torch.Tensor | None:
    return next((each for group in optimizer.param_groups for each in group["params"]), None)


def _has_state(optimizer: Optimizer) -> bool:
    """Return whether steps of this optimizer build up a state. One of a class that is not torch's must have some already."""
    if isinstance(optimizer, SGD):
        return any(group.get("momentum") for group in optimizer.param_groups)
    return type(optimizer).__module__.startswith("torch.optim") or any(map(bool, optimizer.state.values()))
