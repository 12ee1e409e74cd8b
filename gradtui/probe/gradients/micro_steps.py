"""On request, measure the norm accumulated in `.grad` after each micro-step, before unscaling by the optimizer and clipping.

This is the L2 norm over all trainable parameters of the known models at the end of every backward that accumulates, without a
loss scaler's factor. It is the norm of the sum so far. The contribution of a single micro-step would require a copy of all
gradients from before it, except for the first one after they were cleared. As for every norm, a device makes one asynchronous
copy to the host. Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradtui.probe.gradients.grad_norms import GradNorms, GradNormSample
from gradtui.probe.runtime import CommandResult, NothingToDo
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import with_values
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.protocol.events import MicroStepMeasured
from gradtui.run.text import refusals


class MicroSteps:
    """Measures micro-steps while `on`: at every step, regardless of cost, since the user has requested it."""

    def __init__(self, context: ProbeContext) -> None:
        self.on = False
        self._emit, self._clock = context.emit, context.clock
        self._meter = GradNorms(self._deliver)
        self._number = 0
        """Number of backward passes since the last step ended."""
        self.under_way: dict[int, tuple[int, int]] = {}
        """Reading -> (step, micro-step)."""
        self._readings = 0

    @property
    def dropped(self) -> int:
        """Number of micro-steps not measured because the device had not finished earlier readings."""
        return self._meter.dropped

    def set(self, command: FollowMicroSteps) -> CommandResult:
        """Begin to measure micro-steps from the next step on, or stop. Raises `CommandRefused`."""
        if command.on is self.on:
            raise NothingToDo(refusals.ALREADY_SO)
        self.on = command.on
        if command.on:
            return CommandResult("follow the gradients of each micro-step, at every step", ())
        return CommandResult("no longer follow the gradients of each micro-step", ())

    def ended(self, step: int, parameters: Iterable[torch.Tensor], scale: torch.Tensor | None) -> None:
        """Measure after a backward for `step` has ended; `scale` is a loss scaler's factor that is in all gradients."""
        self._number += 1
        gradients = [(0, p.grad) for p in parameters if p.requires_grad and p.grad is not None and p.grad.numel()]
        if gradients := with_values(gradients):
            self._readings += 1
            self.under_way[self._readings] = (step, self._number)
            self._meter.measure(self._readings, gradients, scale)

    def on_step_post(self) -> None:
        """End the step, executed or skipped: the next backward is the first micro-step of another step."""
        self._number = 0

    def poll(self) -> None:
        """Deliver the readings that a device has finished."""
        self._meter.poll()

    def finish(self) -> None:
        """Deliver the remaining readings. May wait for the device."""
        self._meter.finish()

    def _deliver(self, reading: GradNormSample) -> None:
        step, number = self.under_way.pop(reading.step)
        # Dropped readings were under way before this one.
        self.under_way = {key: of for key, of in self.under_way.items() if key > reading.step}
        if reading.total is not None:
            self._emit(MicroStepMeasured(self._clock.at(), step, number, reading.total))
