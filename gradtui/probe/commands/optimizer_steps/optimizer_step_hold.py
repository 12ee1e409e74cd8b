"""Decide whether the run can be held before an optimizer's step, and skip that step. Runs on the training thread."""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.private_names import found_inf, has_other_step_hooks
from gradtui.run.text import refusals

_ON_DEVICE = ("fused", "capturable", "differentiable")
"""Settings of a group with which a step does more than the operations of its Python code."""


class OptimizerStepHold:
    """The hold before an optimizer's step, and the step that is to be skipped.

    A step is skipped by hiding the gradients of its parameters from it: the optimizers of `torch.optim` leave a parameter
    without a gradient, and its state, as they are. After the step the gradients are back.
    """

    def __init__(self, context: ProbeContext) -> None:
        self.is_on = False
        """Whether the probe asks before each optimizer step."""
        self.awaits = False
        """Whether the run is to be held because gradients or loss are not finite."""
        self.skips = False
        """Whether the step that begins is to be skipped."""
        self.hidden: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Parameters and their gradients, while the step that is skipped runs. If it raises, they are dropped: the script may
        compute others before gradtui learns of it."""
        self._hooks = context.hooks

    def objection(self, optimizer: Optimizer, is_scaled: bool, with_closure: bool, is_first: bool) -> str | None:
        """Return why the run cannot be held before this step; None if it can.

        `is_first`: no other optimizer has stepped since the last boundary, so a schedule can say when the step comes.
        """
        if with_closure:
            return refusals.STEP_HAS_CLOSURE
        if is_scaled or found_inf(optimizer) is not None:
            return refusals.STEP_IS_SCALED
        if self._hooks.in_backward:
            return refusals.STEP_IN_BACKWARD
        return None if is_first and not is_capturing() else refusals.STEP_FOLLOWS_ANOTHER

    @staticmethod
    def no_skip(optimizer: Optimizer) -> str:
        """Return why the step of this optimizer cannot be skipped; empty if it can."""
        if not f"{type(optimizer).__module__}.".startswith("torch.optim."):
            return refusals.step_is_not_torchs(type(optimizer).__name__)
        settings = [name for name in _ON_DEVICE if any(group.get(name) for group in optimizer.param_groups)]
        if settings:
            return refusals.step_is_on_device(settings[0])
        return refusals.STEP_HAS_HOOKS if has_other_step_hooks(optimizer) else ""

    def request(self, step: int, no_skip: str) -> CommandResult:
        """Skip the step that follows `step` executed ones, unless `no_skip` says why not. Raises `CommandRefused`."""
        if no_skip:
            raise CommandRefused(no_skip)
        if self.skips:
            raise NothingToDo(refusals.ALREADY_SO)
        self.skips = True
        return CommandResult(f"skips the optimizer step after step {step:,}", ())

    def hide(self, optimizer: Optimizer) -> None:
        """Hide the gradients of the step that begins."""
        self.skips = False
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
