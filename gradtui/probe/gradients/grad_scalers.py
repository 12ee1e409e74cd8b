"""What the script's GradScalers do: the factor in its losses, and the steps they leave out. Runs on the training thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.gradients.grad_norm_collector import GradNormCollector
from gradtui.probe.steps import StepCounter
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import found_inf, operations_are_observed

_MAX_UNDER_WAY = 64
"""Answers of a device that may be under way. A step beyond counts as executed."""


def is_on_cuda(tensor: torch.Tensor) -> bool:
    """Whether a copy to the host is asynchronous. From other devices nothing is read: that would wait for them."""
    return tensor.is_cuda


class GradScalers:
    """Hears from every enabled `GradScaler`; `left_out` is called with the time and the optimizer of each step left out."""

    def __init__(
        self,
        norms: GradNormCollector,
        counter: StepCounter,
        place_of: Callable[[Optimizer], int],
        left_out: Callable[[int, Optimizer], None],
    ) -> None:
        self._norms = norms
        self._counter = counter
        self._place_of = place_of
        self._left_out = left_out
        self._passed_on = False
        self.under_way: deque[tuple[int, HostCopy]] = deque()
        """Places of fused optimizers that have run a step, and whether they skipped it."""

    def skips(self, optimizer: Optimizer) -> bool:
        """Whether the step that the optimizer has just run was skipped by a loss scaler's word.

        A fused optimizer decides that on the device, within its kernel. Such a step is counted as executed until `poll`.
        """
        found = found_inf(optimizer)
        if found is None or found.device.type == "cpu":
            return found is not None and bool(found)
        if is_on_cuda(found) and len(self.under_way) < _MAX_UNDER_WAY and not operations_are_observed():
            self.under_way.append((self._place_of(optimizer), HostCopy(found.reshape(1))))
        return False

    def poll(self) -> None:
        """Correct the counts of steps by what a device has said since. Never waits."""
        while self.under_way and self.under_way[0][1].is_there:
            place, copy = self.under_way.popleft()
            if any(copy.values()):
                self._counter.was_skipped(place, is_newest=not self.under_way)

    def finish(self) -> None:
        """As `poll`, at the end of the run: may wait for the device."""
        if self.under_way:
            self.under_way[-1][1].wait()
        self.poll()

    def passed_on(self) -> None:
        """An optimizer's own step has run: a `GradScaler.step` around it has not left it out."""
        self._passed_on = True

    def made(self, now: int, scaler: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """A GradScaler was constructed."""
        self._norms.on_scaler(scaler)

    def scaled(self, now: int, scaler: Any) -> None:  # noqa: ARG002
        """`GradScaler.scale` is called on what will be passed to backward."""
        self._norms.on_scaling(scaler)

    def stepping(self, now: int) -> None:  # noqa: ARG002
        """`GradScaler.step` is called; it may leave the optimizer's step out."""
        self._passed_on = False

    def stepped(self, now: int, optimizer: Optimizer) -> None:
        """It returned."""
        if not self._passed_on:
            self._norms.bad_steps.left_out = True
            self._left_out(now, optimizer)
