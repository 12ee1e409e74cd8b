"""Between backward and the optimizer's step: hold the run there, or skip that step. Runs on the training thread.

`PauseAtBadStep` holds the run in the pre-hook of the step that would apply NaN or Inf. Only then may commands be applied
between backward and step: those that hold or release the run, `SetGroup` and `SkipStep`. A step is skipped by hiding the
gradients of its parameters from it: the optimizers of `torch.optim` leave a parameter without a gradient, and its state, as
they are. So the script's call, its schedulers and its own hooks run as ever, and after the step the gradients are back.
"""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.schedule.schedule_replay import ScheduleReplay
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.private_names import found_inf, has_other_step_hooks
from gradtui.protocol.commands import PauseAtBadStep, SkipStep
from gradtui.protocol.events import SpikeFound
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.text import refusals
from gradtui.run.text.bad_steps import loss_spike_text
from gradtui.system.own_frames import script_line

_ON_DEVICE = ("fused", "capturable", "differentiable")
"""Settings of a group with which a step does more than the operations of its Python code."""


class OptimizerSteps:
    """Holds the run before an optimizer's step with bad gradients or at a spike, and skips steps on request."""

    def __init__(
        self,
        context: ProbeContext,
        norms: GradNormCollector,
        crossing: Crossing,
        boundary: Boundary,
        replay: ScheduleReplay,
    ) -> None:
        self._counter, self._norms, self._crossing = context.counter, norms, crossing
        self._boundary, self._breakpoints, self._replay = boundary, boundary.breakpoints, replay
        self._hooks = context.hooks
        self.is_on = False
        """Whether the probe asks before each optimizer step."""
        self.awaits = False
        """Whether the run is to be held because gradients or loss are not finite."""
        self._skips = False
        """Whether the step that begins is to be skipped."""
        self.hidden: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Parameters and their gradients, while the step that is skipped runs. If it raises, they are dropped: the script may
        compute others before gradtui learns of it."""
        self._spiked_at = 0
        """The newest step with a spike at which the run is to be paused."""
        norms.found_batches.spiked = self._spiked

    def request_hold(self, command: PauseAtBadStep, reason: str) -> bool:
        """Hold the run before the next optimizer step with bad gradients, at the latest at the next boundary.

        Called between two boundaries. Return whether the run may be held.
        """
        self._crossing.step = self._counter.steps
        self.awaits = self._boundary.hold(command, reason)
        return self.awaits

    def request_skip(self, _: SkipStep) -> CommandResult:
        """Skip the next optimizer step. Raises `CommandRefused`."""
        held = self._boundary.held_step
        no_skip = held.no_skip if held is not None else refusals.NO_OPTIMIZER_STEP
        if no_skip:
            raise CommandRefused(no_skip)
        if self._skips:
            raise NothingToDo(refusals.ALREADY_SO)
        self._skips = True
        return CommandResult(f"skips the optimizer step after step {self._crossing.step:,}", ())

    def _spiked(self, spike: SpikeFound) -> None:
        if self._breakpoints.spiked(loss_spike_text(spike)):
            self._spiked_at = spike.step

    def cross(self, optimizer: Optimizer, index: int, with_closure: bool, is_first: bool) -> None:
        """Hold the run before an optimizer's step, or skip the step, if that was requested. Raises `RunStopped`.

        `is_first`: no other optimizer has stepped since the last boundary, so a schedule can say when the step comes.
        """
        step = self._counter.steps
        if self._norms.found_batches.are_recorded and not is_capturing():
            # The gradients of this step must have been read before it is applied.
            self._norms.wait()
        is_spike = self._spiked_at == step + 1
        is_due = is_spike or (self.awaits and self._norms.bad_steps.bad_gradients == step + 1)
        if not is_due and not self._boundary.skips:
            return
        name = type(optimizer).__name__
        objection = self._objection(optimizer, with_closure, is_first)
        if is_due and objection is not None:
            (self._breakpoints.explain if is_spike else self._boundary.explain_hold)(
                f"after the step of {name}, since {objection}"
            )
        elif is_spike:
            self._boundary.hold_if_reached(step)
        held_step = HeldStep(index, name, objection or _no_skip(optimizer), script_line() if is_due else None)
        self._crossing.begin(step)
        self.awaits = False
        refused = self._boundary.before_step(held_step, step, holds=is_due and objection is None)
        if any(each.id < 0 for each in refused):
            self._replay.give_up(f"the step of {name} cannot be skipped: {held_step.no_skip}")
        if self._skips:
            self._hide_gradients(optimizer)

    def _objection(self, optimizer: Optimizer, with_closure: bool, is_first: bool) -> str | None:
        """Return why the run cannot be held before this step; None if it can."""
        if with_closure:
            return refusals.STEP_HAS_CLOSURE
        if self._norms.losses.scale.is_in_use or found_inf(optimizer) is not None:
            return refusals.STEP_IS_SCALED
        if self._hooks.in_backward:
            return refusals.STEP_IN_BACKWARD
        return None if is_first and not is_capturing() else refusals.STEP_FOLLOWS_ANOTHER

    def _hide_gradients(self, optimizer: Optimizer) -> None:
        self._skips = False
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.hidden.append((parameter, parameter.grad))
                    parameter.grad = None

    def restore(self) -> bool:
        """Put the hidden gradients back as soon as the step has ended, before its memory is measured. Return True."""
        hidden, self.hidden = self.hidden, []
        for parameter, gradient in hidden:
            parameter.grad = gradient
        return True


def _no_skip(optimizer: Optimizer) -> str:
    """Return why the step of this optimizer cannot be skipped; empty if it can."""
    if not f"{type(optimizer).__module__}.".startswith("torch.optim."):
        return refusals.step_is_not_torchs(type(optimizer).__name__)
    settings = [name for name in _ON_DEVICE if any(group.get(name) for group in optimizer.param_groups)]
    if settings:
        return refusals.step_is_on_device(settings[0])
    return refusals.STEP_HAS_HOOKS if has_other_step_hooks(optimizer) else ""
