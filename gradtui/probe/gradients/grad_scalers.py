"""Record what the script's GradScalers do: the scale of its losses, and skipped steps. Runs on the training thread."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.gradients.grad_norm_collector import GradNormCollector
from gradtui.probe.steps import CallOrder, ProbeContext
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import found_inf, operations_are_observed

_MAX_UNDER_WAY = 64
"""Maximum number of `found_inf` copies under way. Any further step counts as executed."""


def is_on_cuda(tensor: torch.Tensor) -> bool:
    """Return whether a copy to the host is asynchronous. Other devices are not read: reading them would wait."""
    return tensor.is_cuda


class _Answer(NamedTuple):
    """Whether a fused optimizer skipped a step: what its device will have copied to the host."""

    number: int
    optimizer: weakref.ref[Optimizer]
    step: int
    """The number of the step among those that have ended."""
    is_skipped: HostCopy


class GradScalers:
    """Receives the calls of every enabled `GradScaler`.

    `left_out` receives the time and optimizer of each skipped step, `was_left_out` the optimizer and the number of each step
    that counted as executed before a device reported that it was skipped.
    """

    def __init__(
        self,
        context: ProbeContext,
        norms: GradNormCollector,
        order: CallOrder,
        left_out: Callable[[int, Optimizer], None],
        was_left_out: Callable[[Optimizer, int], None],
    ) -> None:
        self._norms, self._order = norms, order
        self._counter = context.counter
        self._index_of = context.models.discovery.register_optimizer
        self._left_out, self._was_left_out = left_out, was_left_out
        self._passed_on = False
        self.under_way: deque[_Answer] = deque()
        """Steps of fused optimizers, and whether they skipped them."""

    def skips(self, optimizer: Optimizer) -> bool:
        """Return whether the optimizer skipped the step that it has just run because of a loss scaler's `found_inf`.

        A fused optimizer decides that on the device, within its kernel. Such a step counts as executed until `poll`.
        """
        found = found_inf(optimizer)
        if found is None or found.device.type == "cpu":
            return found is not None and bool(found)
        if is_on_cuda(found) and len(self.under_way) < _MAX_UNDER_WAY and not operations_are_observed():
            copy, step = HostCopy(found.reshape(1)), self._counter.ended + 1
            self.under_way.append(_Answer(self._index_of(optimizer), weakref.ref(optimizer), step, copy))
        return False

    def poll(self) -> None:
        """Correct the step counts by the results that have arrived from a device. Never waits."""
        while self.under_way and self.under_way[0].is_skipped.is_there:
            answer = self.under_way.popleft()
            if any(answer.is_skipped.values()):
                self._counter.was_skipped(answer.number, is_newest=not self.under_way)
                if (optimizer := answer.optimizer()) is not None:
                    self._was_left_out(optimizer, answer.step)

    def finish(self) -> None:
        """Poll at the end of the run. May wait for the device."""
        if self.under_way:
            self.under_way[-1].is_skipped.wait()
        self.poll()

    def passed_on(self) -> None:
        """Record that an optimizer's own step has run: an enclosing `GradScaler.step` has not skipped it."""
        self._passed_on = True

    def made(self, now: int, scaler: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """Register a new GradScaler."""
        self._norms.losses.scale.add(scaler)

    def scaled(self, now: int, scaler: Any) -> None:  # noqa: ARG002
        """Record that `GradScaler.scale` is called on a tensor that backward will be called on."""
        self._order.on_scaling(is_scaled=True)
        self._norms.losses.scale.scales(scaler)

    def unscaled(self, now: int, scaler: Any) -> None:  # noqa: ARG002
        """Record that the script unscales the gradients of an optimizer."""
        self._order.on_scaling(is_scaled=False)

    def stepping(self, now: int) -> None:  # noqa: ARG002
        """Handle the beginning of `GradScaler.step`, which may skip the optimizer's step."""
        self._passed_on = False

    def stepped(self, now: int, optimizer: Optimizer) -> None:
        """Handle the return of `GradScaler.step`."""
        if not self._passed_on:
            self._norms.bad_steps.left_out = True
            self._left_out(now, optimizer)
