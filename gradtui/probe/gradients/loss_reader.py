"""Read the loss that each backward begins on, and deliver that of each step. Runs on the training thread."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.gradients.buffered_readings import BufferedReadings
from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.gradients.latest_norms import LatestNorms
from gradtui.probe.gradients.loss_scale import LossScale
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.gradients.step_loss import DeviceLoss, LossReading, StepLoss, loss_of, value_of
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.probe.torch_private.loss_factor import factor_of
from gradtui.probe.torch_private.module_walk import modules_of

_MAX_LOSSES = 64
"""Losses under way from a device. Later ones are dropped: a script that runs further ahead still receives some."""


class LossReader:
    """Reads the loss of every step, whatever is measured of its gradients.

    On the CPU that is the copy of one number. From a device it is copied asynchronously.
    """

    def __init__(
        self,
        context: ProbeContext,
        bad_steps: NonFiniteDetector,
        buffered: BufferedReadings,
        latest: LatestNorms,
        epochs: Epochs,
    ) -> None:
        self.scale = LossScale()
        self.step = StepLoss()
        """The loss of the current step, in memory that does not belong to the script."""
        self._models, self._hooks = context.models, context.hooks
        self._spikes, self._epochs = buffered.spikes, epochs
        self._bad_steps, self._latest, self._applied = bad_steps, latest, buffered.applied
        self._in_backward: DeviceLoss | None = None
        """The loss of the backward that is running, if it is on a device."""
        self.dropped = 0
        """Number of steps whose loss is unknown, because the device had not finished earlier ones."""
        self._under_way: deque[tuple[int, int, LossReading]] = deque()
        """Step, index of the optimizer, and the loss that has not arrived from a device."""

    def on_zero_grad(self, owner: Any) -> None:
        """Handle the call of `zero_grad` of an optimizer or module, whose gradients still exist."""
        optimizers = self._models.live_optimizers()
        if len(optimizers) > 1:
            if isinstance(owner, Optimizer):
                self.step.cleared_by(owner)
        elif self.step.values and self._clears_all(owner, optimizers[0] if optimizers else None):
            self.step.forget()

    def _clears_all(self, owner: Any, optimizer: Optimizer | None) -> bool:
        """Return whether `optimizer` (None: the script) has no gradient to apply after `zero_grad` of `owner`."""
        if isinstance(owner, Optimizer):
            return optimizer in (owner, None)
        cleared = {id(each) for module in modules_of(owner) for each in module._parameters.values()}  # noqa: SLF001
        return not any(each.grad is not None and id(each) not in cleared for _, each in self._applied.of(optimizer))

    def on_backward(self, outputs: Any) -> None:
        """Read the loss from the tensors that backward is called on, without the factor of a loss scaler."""
        loss = loss_of(outputs)
        if loss is None:
            return
        scale, is_scaled = self.scale.factor(), self.scale.is_applied
        value = value_of(loss, scale)
        self.step.add(value, factor_of(outputs, is_scaled=is_scaled) if len(self.step) else None)
        if isinstance(value, float):
            with self._hooks.guarded("first bad step"):
                self._bad_steps.on_loss(value, outputs, is_scaled=is_scaled)
            with self._hooks.guarded("spikes"):
                self._spikes.on_loss(value)
        else:
            value.batches = self._epochs.places(())
            self._in_backward = value

    def backward_ended(self) -> None:
        """Begin to copy the loss from a device."""
        loss, self._in_backward = self._in_backward, None
        if loss is not None:
            loss.backward_ended()

    def ended(self, step: int, index: int, optimizer: Optimizer | None = None, *, is_delivered: bool) -> None:
        """End `step` of the optimizer with this index. Its loss may be delivered already, with the norms of the step."""
        self.step.is_applied = True
        if not is_delivered:
            self.deliver(step, index, self.step.reading(optimizer))

    def deliver(self, step: int, index: int, loss: LossReading) -> None:
        """Deliver the loss of a step that has ended, once it has arrived from a device."""
        if loss.is_there:
            self._arrived(step, index, loss)
        elif len(self._under_way) < _MAX_LOSSES:
            self._under_way.append((step, index, loss))
        else:
            self.dropped += 1

    def poll(self) -> None:
        """Deliver the losses that have arrived from a device. Never waits."""
        while self._under_way and self._under_way[0][2].is_there:
            self._arrived(*self._under_way.popleft())

    def finish(self) -> None:
        """Deliver the remaining losses. May wait for the device."""
        for _, _, loss in self._under_way:
            loss.wait()
        self.poll()

    def note_late(self, step: int, loss: LossReading, value: float) -> None:
        """Compare a loss that has arrived from a device with those before it."""
        if loss.is_of_device:
            with self._hooks.guarded("spikes"):
                self._spikes.on_late_loss(value, step, loss.batches)

    def _arrived(self, step: int, index: int, loss: LossReading) -> None:
        value = loss.value
        if value is None:
            return
        self.note_late(step, loss, value)
        if not math.isfinite(value):
            with self._hooks.guarded("first bad step"):
                self._bad_steps.read(GradNormSample(step, None, value, [], batches=loss.batches))
        self._latest.loss(step, index, value, loss.of)
