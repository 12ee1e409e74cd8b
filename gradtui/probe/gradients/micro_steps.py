"""On request: what has accumulated in `.grad` after each micro-step, before unscaling by the optimizer and before clipping.

The L2 norm over all trainable parameters of the known models, at the end of every backward that accumulates, without a loss
scaler's factor. It is that of the sum so far: what one micro-step has added by itself could be told only by keeping a copy of
all gradients from before it, except for the first one after they were cleared. Like every norm it goes to the host by one
asynchronous copy on a device. Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from gradtui.probe.gradients.grad_norms import GradNorms, GradNormSample
from gradtui.probe.runtime import CommandResult, NothingToDo, RunClock
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.protocol.events import Event, MicroStepMeasured


class MicroSteps:
    """Follows the micro-steps while `on`: at every step, whatever that costs, since a person has asked for it."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock) -> None:
        self.on = False
        self._emit = emit
        self._clock = clock
        self._meter = GradNorms(self._deliver)
        self._number = 0
        """Backward passes since the last step ended."""
        self.under_way: dict[int, tuple[int, int]] = {}
        """Reading -> (step, micro-step)."""
        self._readings = 0

    @property
    def dropped(self) -> int:
        """Micro-steps not measured because the device had not finished the readings before."""
        return self._meter.dropped

    def set(self, command: FollowMicroSteps) -> CommandResult:
        """Follow them from the next step on, or no longer. Raises `CommandRefused`."""
        if command.on is self.on:
            raise NothingToDo(f"they are {'already' if self.on else 'not'} followed")
        self.on = command.on
        if command.on:
            return CommandResult("follow the gradients of each micro-step, at every step", ())
        return CommandResult("no longer follow the gradients of each micro-step", ())

    def ended(self, step: int, parameters: Iterable[torch.Tensor], scale: torch.Tensor | None) -> None:
        """A backward that serves `step` has ended; `scale` is a loss scaler's factor that is in all gradients."""
        self._number += 1
        gradients = [(0, p.grad) for p in parameters if p.requires_grad and p.grad is not None and p.grad.numel()]
        if not gradients:
            return
        self._readings += 1
        self.under_way[self._readings] = (step, self._number)
        self._meter.measure(self._readings, gradients, None, scale)

    def on_step_post(self) -> None:
        """A step has ended, executed or not: the next backward is the first micro-step of another."""
        self._number = 0

    def poll(self) -> None:
        """Send what a device has finished."""
        self._meter.poll()

    def finish(self) -> None:
        """Send what is still on its way; may wait for the device."""
        self._meter.finish()

    def _deliver(self, reading: GradNormSample) -> None:
        step, number = self.under_way.pop(reading.step)
        # What was dropped was on its way before this one.
        self.under_way = {key: of for key, of in self.under_way.items() if key > reading.step}
        if reading.total is not None:
            self._emit(MicroStepMeasured(self._clock.at(), step, number, reading.total))
