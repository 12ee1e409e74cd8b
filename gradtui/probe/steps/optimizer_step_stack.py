"""Track which `Optimizer.step` calls are running now. Runs on the training thread.

A subclass that calls its parent's step is reported twice. A closure may step another optimizer. A step that raises is never
reported as ended, since post-hooks do not run then. The Python stack shows how many calls are really running.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.torch_private.private_names import optimizer_steps_on_stack


class OpenStep(NamedTuple):
    """A running call of `Optimizer.step`."""

    optimizer: Optimizer
    with_closure: bool
    nested: bool
    """Whether the same optimizer's step is already running further out: a subclass calls its parent's."""


class OptimizerStepStack:
    """Holds the running calls, outermost first. If some have raised, `lost` is called with the number of calls left."""

    def __init__(self, lost: Callable[[int], None]) -> None:
        self._lost = lost
        self._open: list[OpenStep] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def depth(self) -> int:
        """The number of running steps, without calls of parents' steps."""
        return sum(not step.nested for step in self._open)

    def began(self, optimizer: Optimizer, with_closure: bool) -> OpenStep:
        """Push a step that begins."""
        nested = bool(self._open) and any(step.optimizer is optimizer for step in self._open)
        step = OpenStep(optimizer, with_closure, nested)
        self._open.append(step)
        return step

    def ended(self, optimizer: Optimizer) -> OpenStep | None:
        """Pop the innermost step, which ended; None if its start is not known."""
        if self._open and self._open[-1].optimizer is optimizer:
            return self._open.pop()
        return None

    def are_running(self) -> bool:
        """Return whether any step is really running."""
        self.drop_lost()
        return bool(self._open)

    def drop_lost(self, *, besides: int = 0) -> None:
        """Remove steps that raised. `besides` is the number of running ones that are not pushed yet."""
        if not self._open:
            return
        running = max(0, optimizer_steps_on_stack() - besides)
        if len(self._open) > running:
            del self._open[running:]
            self._lost(self.depth)
