"""Distinguish evaluation from training: a root module called without autograd recording, or in eval mode. Pure bookkeeping.

Some scripts train in eval mode (frozen dropout, fine-tuning). A call in eval mode counts as evaluation until a backward
follows it; from then on that module's calls count as training.
"""

from __future__ import annotations

import weakref

import torch
from torch import nn

from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.module_walk import parameters_of


class EvalDetector:
    """Tracks the running or latest call of a root module that counts as evaluation."""

    def __init__(self) -> None:
        self._trains_in_eval: ByIdentity[nn.Module, bool] = ByIdentity()
        self._running: nn.Module | None = None
        self._records = False
        self._began = 0
        self._last: tuple[weakref.ref[nn.Module], int] | None = None
        """(module, duration in nanoseconds) of the latest such call that autograd recorded."""
        self._is_unused = False
        """Whether that call was of a module with trainable parameters, and no backward has followed it."""
        self.unused_graphs = 0
        """Number of such calls that no backward followed."""

    def is_evaluation(self, module: nn.Module) -> bool:
        """Return whether a call of this root module that begins now is evaluation."""
        if not torch.is_grad_enabled():
            return True
        return not module.training and not self._trains_in_eval.get(module)

    def began(self, module: nn.Module, now: int) -> None:
        """Record the start of an evaluation call."""
        self._count_unused()
        self._running, self._began, self._last = module, now, None
        self._records = torch.is_grad_enabled()

    def ended(self, module: nn.Module, now: int) -> bool:
        """Record the end of a root module's call; return whether it was evaluation."""
        if self._running is not module:
            return False
        self._running = None
        if self._records:
            self._last = (weakref.ref(module), now - self._began)
            self._is_unused = any(each.requires_grad for each in parameters_of(module))
        return True

    def forget(self) -> None:
        """Forget the latest evaluation call: the next backward does not belong to it."""
        self._last = None
        self._count_unused()

    def backward(self, now: int) -> int | None:
        """Handle the start of a backward.

        Returns the nanoseconds of a call in eval mode that turns out to have been training, None if there was none.
        """
        module, last = self._running, self._last
        self._last, self._is_unused = None, False
        if module is not None and self._records:
            # The backward runs within that call: the rest of the call is not evaluation either.
            self._running = None
            self._trains_in_eval.set(module, True)
            return now - self._began
        if last is None:
            return None
        if (called := last[0]()) is not None:
            self._trains_in_eval.set(called, True)
        return last[1]

    def graph_is_used(self) -> None:
        """Handle `autograd.grad`, as an attack on the inputs calls it: the call before it stays an evaluation."""
        self._is_unused = False

    def _count_unused(self) -> None:
        self.unused_graphs += self._is_unused
        self._is_unused = False
