"""Which `Optimizer.step` calls are running now. Runs on the training thread.

A subclass that calls its parent's step reports twice; a closure may step another optimizer; and a step that raises never
says that it ended, since post-hooks do not run then. The Python stack tells how many are really running.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch.optim import Optimizer

from gradtui.probe.torch_private.private_names import optimizer_steps_on_stack


class OpenStep(NamedTuple):
    """One running call of `Optimizer.step`."""

    optimizer: Optimizer
    with_closure: bool
    nested: bool
    """The same optimizer's step is already running further out: a subclass calls its parent's."""


class OptimizerStepStack:
    """The running calls, outermost first. `lost` is told how many are left when some turn out to have raised."""

    def __init__(self, lost: Callable[[int], None]) -> None:
        self._lost = lost
        self._open: list[OpenStep] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def depth(self) -> int:
        """How many different steps are running, those of parents not counted."""
        return sum(not step.nested for step in self._open)

    def began(self, optimizer: Optimizer, with_closure: bool) -> OpenStep:
        """A step begins."""
        nested = bool(self._open) and any(step.optimizer is optimizer for step in self._open)
        step = OpenStep(optimizer, with_closure, nested)
        self._open.append(step)
        return step

    def ended(self, optimizer: Optimizer) -> OpenStep | None:
        """The innermost step ended; None if it is not known to have begun."""
        if self._open and self._open[-1].optimizer is optimizer:
            return self._open.pop()
        return None

    def are_running(self) -> bool:
        """Whether any step is really running."""
        self.drop_lost()
        return bool(self._open)

    def drop_lost(self, *, besides: int = 0) -> None:
        """Forget steps that raised. `besides`: running ones that are not entered here yet."""
        if not self._open:
            return
        running = max(0, optimizer_steps_on_stack() - besides)
        if len(self._open) > running:
            del self._open[running:]
            self._lost(self.depth)
