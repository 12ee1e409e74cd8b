"""Receive the events of a training step in their order, and call the parts of the probe. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.buffered_steps import BufferedSteps
from gradtui.probe.gradients import GradScalers
from gradtui.probe.memory import MemoryCounter
from gradtui.probe.model import is_constructing
from gradtui.probe.parts import ProbeParts
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.sampling import Extent
from gradtui.probe.steps import CapturedWork, CudaGraphs, OptimizerStepStack
from gradtui.probe.torch_private.private_names import has_stand_ins
from gradtui.probe.trials import Again
from gradtui.protocol.events import Event
from gradtui.protocol.vocabulary import Phase


class Probe:
    """Observes every training run of this process from `hooks.install` to `detach`.

    A step is mostly, in this order: `on_zero_grad_pre`, `on_zero_grad_post`, `on_forward_pre` (it calls `_on_boundary`, where
    commands are applied and the step is sampled or not), `on_forward_post`, `on_backward_pre`, `on_backward_post`,
    `on_step_pre`, `on_step_post` (it calls `_on_step_end`). `_on_buffered` receives the events of steps that are not sampled.
    """

    def __init__(self, emit: Callable[[Event], None], allocator: MemoryCounter, options: ProbeOptions) -> None:
        self.commands = options.commands
        self.parts = parts = ProbeParts(emit, allocator, options, self._on_buffered)
        self.clock, self.hooks, self.counter, self.view = parts.clock, parts.hooks, parts.counter, parts.view
        self.phases, self.buffer, self._order = parts.phases, parts.buffer, parts.order
        self.step_sampler, self.norms, self.dispatcher = parts.step_sampler, parts.norms, parts.dispatcher
        self._totals = self.step_sampler.totals
        self._cost, self._profiles, self._evaluation = parts.cost, parts.profiles, parts.evaluation
        self._steps, self._optimizer_steps = OptimizerStepStack(self._steps_lost), self.dispatcher.optimizer_steps
        self.scalers = GradScalers(parts.context, self.norms, parts.order, self._on_step_skipped, parts.skipped_late)
        self.graphs = CudaGraphs(self._on_graph_replay_pre, self._on_graph_replay_post)
        self._shows_states = False
        """Whether the states of a step that does not allow a whole sample are emitted."""
        self._boundary_open = True
        """Whether a step has ended (or none has begun), and nothing of the next one has run yet."""
        self._stepped: set[int] = set()
        """Indexes of the optimizers that have stepped in this iteration."""
        self._buffered = BufferedSteps(parts, self._steps, self.graphs)

    def detach(self) -> None:
        """Remove the hooks and emit the remaining events. The script's objects keep nothing of gradtui."""
        self.hooks.remove()
        self.buffer.leave()
        self.hooks.guard("probe", lambda: self._catch_up(at_end=True))

    def report(self) -> None:
        """Emit the counts and measurements made so far. Call it on the training thread."""
        self.buffer.leave()
        self.hooks.guard("probe", self._catch_up)

    def _catch_up(self, *, at_end: bool = False) -> None:
        if at_end and self.step_sampler.sampled_step is not None:
            self.counter.sampled(self._cost.of_step(), is_exempt=self.step_sampler.is_exempt)
        with self.hooks.guarded("steps"):
            self.scalers.finish()
        if at_end:
            with self.hooks.guarded("models"):
                self.view.reconcile(self.counter.steps)
        with self.hooks.guarded("gradient norms"):
            self._measure_newest()
        with self.hooks.guarded("optimizer settings"):
            (self.view.groups.finish if at_end else self.view.groups.look)(self.counter.steps + 1)
        with self.hooks.guarded("gradient norms"):
            self.norms.catch_up()
        if at_end:
            with self.hooks.guarded("tries"):
                self.dispatcher.tries.run_ended()
            with self.hooks.guarded("memory"):
                self.step_sampler.finish()
            with self.hooks.guarded("freezes"):
                self.dispatcher.rows.detach()
                self.dispatcher.trainability.detach()
        self.parts.flush(self.clock.now(), at_end=True)

    def on_batch_wanted(self, now: int, iterator: Any) -> Again | None:
        """Handle the request of a batch during a try. Return one that was given before; None if the DataLoader gives one."""
        is_between = self._boundary_open and not self._steps.are_running()
        given = self.dispatcher.batch_wanted(now, iterator, is_between=is_between)
        if given is not None:
            self.parts.on_next_batch(now)
            self.parts.on_next_batch_post(self.clock.now())
            self.norms.epochs.given_again()
            self.step_sampler.batches.fetched(given.batch, iterator, is_together=False)
        return given

    def on_zero_grad_pre(self, now: int, owner: Any) -> None:
        """Handle the start of `zero_grad` of an optimizer or module."""
        self._order.on_zero_grad(owner)
        self.norms.losses.on_zero_grad(owner)
        if self.norms.by_hand.step:
            with self.hooks.guarded("gradient norms"):
                self.norms.end_by_hand()
        self.phases.interrupt(Phase.ZERO_GRAD, now)

    def on_zero_grad_post(self, now: int) -> None:
        """Handle the end of `zero_grad`."""
        self.phases.resume(now)

    def _on_boundary(self, root: nn.Module | None = None, *, for_commands: bool = True) -> None:
        """Begin the next step. `root` is the module whose call begins it, None if no module does."""
        if self._steps.are_running():
            return
        self._boundary_open = False
        self._stepped.clear()
        if self.norms.by_hand.step:
            with self.hooks.guarded("gradient norms"):
                self.norms.end_by_hand()
        if self.scalers.under_way:
            with self.hooks.guarded("steps"):
                self.scalers.poll()
        executed = self.counter.steps
        if self._is_by_hand():
            # Not when its backward ended: what the script does with the gradients is part of its step.
            self.counter.stop_if_done()
            if self.counter.by_hand:
                self.phases.times.step_ended(is_sampled=self.step_sampler.sampled_step is not None)
        self.parts.process_group.look()
        # Read before a command may pause the run: the duration of the pause is subtracted only when the run resumes.
        cost = self._cost.of_step()
        if self.step_sampler.times.timed is not None:
            self.step_sampler.times.on_step_post()
        if self.step_sampler.sampled_step is not None:
            self.step_sampler.evidence.retained.next_step_begins()
            self.parts.operations.end_step(self.step_sampler.sampled_step)
            self.counter.sampled(cost, is_exempt=self.step_sampler.is_exempt)
        if for_commands:
            with self.hooks.guarded("commands"):
                self.dispatcher.cross(executed, self._is_by_hand())
        with self.hooks.guarded("sampled step"):
            self.step_sampler.begin_step(executed, cost, root, logs_calls=self.norms.found_batches.are_recorded)
        is_sampled = self.step_sampler.sampled_step is not None
        if is_sampled and not self._profiles.is_on and self.parts.operations.begin_step():
            # A mode that counts operations makes each of them longer.
            self.step_sampler.modules.stop()
        is_last = self.counter.is_last(executed) or self.norms.epochs.steps_left == 0
        self._shows_states = is_last or self.step_sampler.extent is Extent.NORMS or self.dispatcher.holds_soon(executed)
        self.norms.begin_step(executed, wanted=is_sampled, expected=self._shows_states)
        self._totals.begin_step(executed + 1, is_sampled=is_sampled)

    def on_forward_pre(self, now: int, module: nn.Module) -> bool:
        """Handle a call of a root module; return whether `on_forward_post` must follow."""
        if not self.counter.micro_steps and is_constructing():
            return False
        has_parameters = self.view.discovery.on_root_call(module)
        if self.view.discovery.dirty and has_parameters:
            # While torch.func puts other tensors in place of a model's parameters, their owner is unknown.
            has_parameters = not has_stand_ins(module)
            if has_parameters:
                self.parts.refresh_models()
        if self._evaluation.is_evaluation(module):
            self._evaluation.began(module, now)
            self.parts.evaluation_began(now, module)
            return True
        if has_parameters:
            self._evaluation.forget()
            if self._boundary_open:
                self._on_boundary(module)
                now = self.clock.now()
                self._buffered.begin(now, module)
            self._order.on_forward(module, self.counter.steps + 1)
        self.phases.forward_began(now)
        if not self.step_sampler.tracer.on:
            return False
        self.step_sampler.tracer.entered(now, module)
        self.step_sampler.forward_began()
        self._profiles.enter()
        return True

    def on_forward_post(self, now: int, module: nn.Module) -> None:
        """Handle the return of a root module."""
        if self._evaluation.ended(module, now):
            if self.phases.ended is None:
                self._totals.left(Phase.EVAL)
            self.phases.resume(now)
        else:
            self._profiles.leave()
            self.step_sampler.tracer.left(now)

    def on_backward_pre(self, now: int, outputs: Any, accumulates: bool, keeps_graph: bool, inputs: Any = ()) -> None:
        """Handle the start of an outermost backward or `autograd.grad`, the latter by `inputs`."""
        if not accumulates:
            self._evaluation.graph_is_used()
            self.phases.interrupt(Phase.BACKWARD, now)
            self._profiles.enter()
            if self.step_sampler.sampled_step is not None:
                self.step_sampler.evidence.on_gradient(inputs)
            return
        if self.norms.by_hand.step:
            with self.hooks.guarded("gradient norms"):
                self.norms.end_by_hand()
        trained_ns = self._evaluation.backward(now)
        if trained_ns is not None:
            # The forward in eval mode was an unrecognised boundary: commands wait for the next one.
            self.phases.evaluation_was_training(trained_ns)
            self._boundary_open = False
        elif self._boundary_open and not (self.counter.by_hand and self.view.tree.parameters):
            # No module was called: the script computes with bare functions and tensors.
            self._on_boundary()
        self._order.on_backward(outputs)
        with self.hooks.guarded("gradient norms"):
            self.norms.losses.on_backward(outputs)
        if self.step_sampler.sampled_step is not None:
            with self.hooks.guarded("sampled step"):
                self.step_sampler.on_backward(outputs, keeps_graph)
            now = self.clock.now()
        self._totals.phase_ended(Phase.FORWARD)
        self.phases.on_backward_pre(now)
        self._profiles.enter()

    def on_backward_post(self, now: int, accumulates: bool) -> None:
        """Handle the end of an outermost backward or `autograd.grad`."""
        self._profiles.leave()
        if not accumulates:
            self.phases.resume(now)
            return
        if self.graphs.capture is not None:
            self.graphs.capture.backwards += 1
            self.phases.on_backward_post(now, in_step=self._steps.are_running())
            return
        self.counter.micro_steps += 1
        with self.hooks.guarded("gradient norms"):
            self.norms.copy_losses()
        self._totals.phase_ended(Phase.BACKWARD)
        try:
            if self.step_sampler.sampled_step is not None:
                self._order.on_backward_post()
                with self.hooks.guarded("sampled step"):
                    self.step_sampler.on_backward_post(now)
        finally:
            # What a signal handler of the script raised within backward is raised again here.
            self.phases.on_backward_post(now, in_step=self._steps.are_running())
        if self.norms.micro_steps.on:
            with self.hooks.guarded("micro-steps"):
                self.norms.on_backward_post(self.counter.steps + 1)
        if self._is_by_hand():
            if self.norms.is_due:
                with self.hooks.guarded("gradient norms"):
                    self.norms.by_hand.on_backward_post(self.counter.steps + 1)
            self._on_step_end(now, None)

    def on_step_pre(self, now: int, optimizer: Optimizer, with_closure: bool) -> None:
        """Handle a call of `Optimizer.step`. A subclass that calls its parent's step causes two calls."""
        self._steps.drop_lost(besides=1)
        index = self.view.discovery.register_optimizer(optimizer)
        if self.view.discovery.dirty:
            self.parts.refresh_models()
        if self._boundary_open and (with_closure or index in self._stepped):
            # With a closure the whole iteration runs within this step. Where no forward or backward was observed, as
            # with torch.func, the iteration is over, and commands cannot be applied now.
            self._on_boundary(for_commands=with_closure)
        if self.dispatcher.rows.frozen:
            self.dispatcher.rows.watch(optimizer)
        if self._steps.began(optimizer, with_closure).nested:
            return
        if self.parts.script_calls.resuming.is_waiting:
            with self.hooks.guarded("resumed run"):
                self.parts.script_calls.resuming.before_step(optimizer)
        with self.hooks.guarded("optimizer settings"):
            self.view.groups.look(self.counter.steps + 1)
        with self.hooks.guarded("freezes"):
            self.dispatcher.freezes.before_step(self.counter.steps, with_closure)
        if self.norms.is_due and not with_closure:
            with self.hooks.guarded("gradient norms"):
                self.norms.measure(self.counter.steps + 1, optimizer)
        if self._optimizer_steps.is_on:
            with self.hooks.guarded("commands"):
                self._optimizer_steps.cross(optimizer, index, with_closure, not self._stepped)
            now = self.clock.now()
        if self.step_sampler.sampled_step is not None:
            self._order.on_step_pre()
            with self.hooks.guarded("sampled step"):
                self.step_sampler.step_begins()
        self.phases.on_step_pre(now)
        if not with_closure:
            self._profiles.enter()

    def on_step_post(self, now: int, optimizer: Optimizer) -> None:
        """Handle the return of `Optimizer.step`. Raises `RunStopped` when the number of steps is reached."""
        step = self._steps.ended(optimizer)
        if step is None or step.nested:
            return
        is_skipped = bool(self._optimizer_steps.hidden) and self._optimizer_steps.restore()
        if step.with_closure:
            self._order.on_closure_step()
        else:
            self._profiles.leave()
        if self.norms.is_due and step.with_closure:
            # A closure's gradients exist only now. They stay as they were applied until they are cleared.
            with self.hooks.guarded("gradient norms"):
                self.norms.measure(self.counter.steps + 1, optimizer, has_run=True)
        self.phases.on_step_post(now)
        self._on_step_end(now, optimizer, skipped=is_skipped or self.scalers.skips(optimizer))

    def _on_step_skipped(self, now: int, optimizer: Optimizer) -> None:
        if self.norms.is_due:
            with self.hooks.guarded("gradient norms"):
                self.norms.measure(self.counter.steps, optimizer)
        self._on_step_end(now, optimizer, skipped=True)

    def _on_step_end(self, now: int, optimizer: Optimizer | None, *, skipped: bool = False) -> None:
        """Handle the end of a step. `optimizer` is None where the script updates its parameters itself."""
        self.scalers.passed_on()
        if self.graphs.capture is not None and optimizer is not None:
            self.graphs.capture.optimizers.append(self.view.stepped(optimizer, self.counter.steps, 0))
            self._boundary_open = not self._steps
            return
        if optimizer is None:
            self.counter.stepped_by_hand()
            self._order.on_step(None, -1, self.counter.steps)
        elif skipped:
            self.counter.skipped()
            self._order.on_step_skipped()
        else:
            index = self.view.stepped(optimizer, self.counter.steps + 1, self.counter.micro_steps)
            self.counter.stepped(index)
            self._order.on_step(optimizer, index, self.counter.steps)
            self._buffered.stepped(optimizer, index)
            self._stepped.add(index)
        self._cost.steps_ended((now,), is_sampled=self.step_sampler.sampled_step is not None)
        self._end_readings(optimizer, skipped=skipped)
        if self.step_sampler.sampled_step is not None:
            if self.parts.script_calls.is_due:
                self.parts.script_calls.report()
            with self.hooks.guarded("sampled step"):
                self.step_sampler.finish_step(optimizer, self.norms.latest.by_index, skipped)
            with self.hooks.guarded("gradient norms"):
                self.norms.latest.forget_frozen()
        elif self._shows_states and self.norms.is_due and self.step_sampler.extent is not Extent.WHOLE:
            with self.hooks.guarded("sampled step"):
                self.step_sampler.norms_measured(optimizer, self.norms.latest.by_index, skipped)
        with self.hooks.guarded("freezes"):
            self.dispatcher.freezes.after_step(self.counter.steps, optimizer)
        self.parts.steps_ended(now)
        if not self._steps:
            self._boundary_open = True
            if optimizer is not None:
                self.counter.stop_if_done()

    def _end_readings(self, optimizer: Optimizer | None, *, skipped: bool) -> None:
        """Read what is left of a step that has ended, and deliver its loss and memory totals."""
        if optimizer is not None:
            self._totals.phase_ended(Phase.OPTIMIZER)
        index = -1 if optimizer is None else self.view.discovery.register_optimizer(optimizer)
        if not skipped:
            with self.hooks.guarded("memory totals"):
                self._totals.step_ended(self.counter.steps, index)
        with self.hooks.guarded("gradient norms"):
            self.norms.stepped(self.counter.steps, index, optimizer, is_skipped=skipped)

    def _on_buffered(self, events: list[int]) -> None:
        self._boundary_open = self.buffer.between
        self._buffered.take(events)

    def _on_graph_replay_pre(self, now: int) -> None:  # noqa: ARG002
        """Handle the start of the replay of a CUDA graph that contains a step: a boundary at which nothing can be frozen."""
        with self.hooks.guarded("commands"):
            self.dispatcher.cross(self.counter.steps, False, True)
        self.norms.poll()

    def _on_graph_replay_post(self, now: int, work: CapturedWork) -> None:
        if work.backwards:
            # Nothing has read the loss of these gradients, and an optimizer's step may follow that is not captured.
            self.norms.losses.step.forget()
        if steps := self.counter.replayed(work.backwards, work.optimizers, by_hand=self._is_by_hand()):
            self._cost.steps_ended((now,) * steps)
        self.parts.steps_ended(now)
        self.counter.stop_if_done()

    def _measure_newest(self) -> None:
        """Measure the gradients of the newest step, if it is over, the next one has not begun, and they are still there."""
        if self.norms.by_hand.step:
            self.norms.end_by_hand()
        optimizer = self._buffered.latest()
        if (optimizer is not None or self._is_by_hand()) and self._boundary_open and not self.counter.left_out:
            self.norms.measure_late(self.counter.steps, optimizer)
            waits = self.step_sampler.extent is not Extent.WHOLE
            if waits and self.norms.newest == self.counter.steps and self.norms.has_gradients(optimizer):
                self.step_sampler.norms_measured(optimizer, self.norms.latest.by_index, skipped=False)

    def _is_by_hand(self) -> bool:
        """Return whether the script updates its parameters itself: no optimizer has stepped, and none is alive that could."""
        return self.counter.none_by_optimizer and not self._steps and not self.view.live_optimizers()

    def _steps_lost(self, left: int) -> None:
        self.phases.steps_open(left)
        self._profiles.drop()
        self._optimizer_steps.hidden.clear()
