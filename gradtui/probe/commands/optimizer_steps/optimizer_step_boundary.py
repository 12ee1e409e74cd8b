"""Between backward and the optimizer's step: hold the run there, or skip that step. Runs on the training thread."""

from __future__ import annotations

from torch.optim import Optimizer

from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.optimizer_steps.optimizer_step_hold import OptimizerStepHold
from gradtui.probe.commands.schedule.schedule_replay import ScheduleReplay
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.runtime import CommandResult
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.protocol.commands import PauseAtBadStep, SkipStep
from gradtui.protocol.events import SpikeFound
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.text import loss_spike_text, refusals
from gradtui.system.own_frames import script_line


class OptimizerStepBoundary:
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
        self.hold = OptimizerStepHold(context)
        self._spiked_at = 0
        """The newest step with a spike at which the run is to be paused."""
        norms.found_batches.spiked = self._spiked

    def request_hold(self, command: PauseAtBadStep, reason: str) -> bool:
        """Hold the run before the next optimizer step with bad gradients, at the latest at the next boundary.

        Called between two boundaries. Return whether the run may be held.
        """
        self._crossing.step = self._counter.steps
        self.hold.awaits = self._boundary.hold(command, reason)
        return self.hold.awaits

    def request_skip(self, _: SkipStep) -> CommandResult:
        """Skip the next optimizer step. Raises `CommandRefused`."""
        held = self._boundary.held_step
        no_skip = held.no_skip if held is not None else refusals.NO_OPTIMIZER_STEP
        return self.hold.request(self._crossing.step, no_skip)

    def _spiked(self, spike: SpikeFound) -> None:
        if self._breakpoints.spiked(loss_spike_text(spike)):
            self._spiked_at = spike.step

    def cross(self, optimizer: Optimizer, index: int, with_closure: bool, is_first: bool) -> None:
        """Hold the run before an optimizer's step, or skip the step, if that was requested. Raises `RunStopped`.

        `is_first`: no other optimizer has stepped since the last boundary.
        """
        hold, step = self.hold, self._counter.steps
        if self._norms.found_batches.are_recorded and not is_capturing():
            # The gradients of this step must have been read before it is applied.
            self._norms.wait()
        is_spike = self._spiked_at == step + 1
        is_due = is_spike or (hold.awaits and self._norms.bad_steps.bad_gradients == step + 1)
        if not is_due and not self._boundary.skips:
            return
        name = type(optimizer).__name__
        objection = hold.objection(optimizer, self._norms.losses.scale.is_in_use, with_closure, is_first)
        if is_due and objection is not None:
            (self._breakpoints.explain if is_spike else self._boundary.explain_hold)(
                f"after the step of {name}, since {objection}"
            )
        elif is_spike:
            self._boundary.hold_if_reached(step)
        held_step = HeldStep(index, name, objection or hold.no_skip(optimizer), script_line() if is_due else None)
        self._crossing.begin(step)
        hold.awaits = False
        refused = self._boundary.before_step(held_step, step, holds=is_due and objection is None)
        if any(each.id < 0 for each in refused):
            self._replay.give_up(f"the step of {name} cannot be skipped: {held_step.no_skip}")
        if hold.skips:
            hold.hide(optimizer)
