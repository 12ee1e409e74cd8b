"""Find backwards that run through modules to an input that requires a gradient which is never read. Training thread.

Whether a script reads `.grad` of a tensor cannot be seen. So a step is reported only if all its backwards have such inputs,
no `torch.autograd.grad` ran in it, and the inputs do not live on. An attack on the input, for example, runs another backward
for the parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import field

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import GraphSummary
from gradtui.probe.model import ModuleTree, optimizer_membership
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import InputGradientUnused

_NAMED = 20


@dataclass
class _Step:
    """The backwards of a sampled step."""

    number: int
    tree: ModuleTree
    inputs: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    modules: set[int] = field(default_factory=set)
    bytes: int = 0
    saved: int = 0
    is_needed: bool = False
    """A backward without such inputs, or something that reads their gradient, has been seen."""


class InputGradients:
    """Reports the newest sampled step once the next one shows that its inputs have been freed."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self._step: _Step | None = None

    def on_gradient(self) -> None:
        """Record that `torch.autograd.grad` ran."""
        if self._step is not None:
            self._step.is_needed = True

    def on_backward(self, facts: GraphSummary, tree: ModuleTree, optimizers: Iterable[Optimizer], number: int) -> None:
        """Record a backward of the sampled step `number`, whose graph has been walked."""
        if self._step is None or self._step.number != number:
            self.settle()
            self._step = _Step(number, tree)
        step, found = self._step, facts.to_inputs
        inputs = [each for reference in found.inputs if (each := reference()) is not None] if found is not None else []
        owned = optimizer_membership.owners(optimizers) if inputs else {}
        if found is None or not found.bytes or any(id(each) in owned for each in inputs):
            step.is_needed = True
            return
        step.inputs += found.inputs
        step.modules |= found.modules
        step.bytes, step.saved = max(step.bytes, found.bytes), max(step.saved, facts.total)

    def settle(self) -> None:
        """Report the recorded step if its inputs have been freed."""
        step, self._step = self._step, None
        if step is None or step.is_needed or any(reference() is not None for reference in step.inputs):
            return
        modules = sorted(step.modules)
        paths = tuple(step.tree.modules[index].path or step.tree.modules[index].name for index in modules[:_NAMED])
        self._emit(InputGradientUnused(self._clock.at(), step.number, paths, len(modules), step.bytes, step.saved))
