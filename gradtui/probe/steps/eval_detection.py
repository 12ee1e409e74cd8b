"""Telling evaluation from training: a root module called without autograd recording, or in eval mode. Pure bookkeeping.

Some scripts train in eval mode (frozen dropout, fine-tuning). Such a call is taken for evaluation until a backward follows
it; from then on that module's calls count as training.
"""

from __future__ import annotations

import weakref

import torch
from torch import nn

from gradtui.probe.runtime import ByIdentity


class EvalDetector:
    """What is known of the root call in eval mode that is running or was the last one."""

    def __init__(self) -> None:
        self._trains_in_eval: ByIdentity[nn.Module, bool] = ByIdentity()
        self._running: nn.Module | None = None
        self._records = False
        self._began = 0
        self._last: tuple[weakref.ref[nn.Module], int] | None = None
        """(module, nanoseconds) of the last such call that autograd recorded."""

    def is_evaluation(self, module: nn.Module) -> bool:
        """Whether a call of this root module that begins now is evaluation."""
        if not torch.is_grad_enabled():
            return True
        return not module.training and not self._trains_in_eval.get(module)

    def began(self, module: nn.Module, now: int) -> None:
        """Such a call began."""
        self._running, self._began, self._last = module, now, None
        self._records = torch.is_grad_enabled()

    def ended(self, module: nn.Module, now: int) -> bool:
        """A root call ended; whether it was evaluation."""
        if self._running is not module:
            return False
        self._running = None
        if self._records:
            self._last = (weakref.ref(module), now - self._began)
        return True

    def forget(self) -> None:
        """What was recorded in eval mode is not what backward runs on now."""
        self._last = None

    def backward(self, now: int) -> int | None:
        """A backward begins: nanoseconds of a call in eval mode that was training after all, None if there was none."""
        module, last = self._running, self._last
        self._last = None
        if module is not None and self._records:
            # Within that call: the rest of it is not evaluation either.
            self._running = None
            self._trains_in_eval.set(module, True)
            return now - self._began
        if last is None:
            return None
        if (called := last[0]()) is not None:
            self._trains_in_eval.set(called, True)
        return last[1]
