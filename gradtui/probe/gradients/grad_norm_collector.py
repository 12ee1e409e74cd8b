"""Measure the loss and the gradients of each step, or of every k-th where that costs too much. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import thread_time_ns

import torch
from torch.optim import Optimizer

from gradtui.probe.gradients.buffered_readings import BufferedNorms, BufferedReadings
from gradtui.probe.gradients.buffered_replay import BufferedReplay
from gradtui.probe.gradients.clip_effects import ClipEffects
from gradtui.probe.gradients.found_batches import FoundBatches
from gradtui.probe.gradients.grad_figures import GradFigures
from gradtui.probe.gradients.grad_norms import GradNorms, GradNormSample
from gradtui.probe.gradients.latest_norms import LatestNorms
from gradtui.probe.gradients.loss_reader import LossReader
from gradtui.probe.gradients.manual_steps import ManualSteps
from gradtui.probe.gradients.micro_steps import MicroSteps
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.gradients.step_loss import NO_LOSS, LossReading
from gradtui.probe.memory import has_room, of_this_process
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import CommandResult
from gradtui.probe.steps import BatchPlace, DeviceTimes, Epochs, ProbeContext
from gradtui.probe.torch_private.private_names import operations_are_observed, with_values


class GradNormCollector:
    """Measures the gradients that an optimizer applies, and the loss they came from."""

    without_room = 0
    """Number of steps and micro-steps not measured because a device had no free memory."""

    def __init__(
        self,
        context: ProbeContext,
        buffered: BufferedReadings,
        bad_steps: NonFiniteDetector,
        times: DeviceTimes,
        effects: ClipEffects,
    ) -> None:
        self.is_due = True
        """Whether the norms of the current step are measured."""
        self._cadence = context.norms_interval
        self._wanted = True
        """The current step is sampled."""
        self.newest = 0
        """The step that was measured last."""
        self._late = 0
        """A step whose gradients were read after its end, when the script may have set them to zero."""
        self.epochs = Epochs(context.counter)
        spikes = buffered.spikes
        bad_steps.epochs = spikes.epochs = buffered.epochs = self.epochs
        self.latest = LatestNorms(context)
        self.losses = LossReader(context, bad_steps, buffered, self.latest, self.epochs)
        self.by_hand = ManualSteps(self._all_gradients, self._measure_by_hand, self._saw_first, self.latest.applied)
        self.bad_steps, self.spikes = bad_steps, spikes
        self.found_batches = FoundBatches(context, bad_steps, spikes, self.epochs)
        self.buffered, self.clippings = buffered, buffered.clippings
        buffered.measure, self.clippings.done = self._measure_buffered, self._clipped
        self.micro_steps = MicroSteps(context)
        self._view = context.models
        self._applied = buffered.applied
        self._is_read = False
        """Whether the norms of the current step were measured, and its loss is delivered with them."""
        self._meter = GradNorms(self._deliver)
        self._counter = context.counter
        self._figures = GradFigures(context, self._applied)
        self._devices: set[int] = set()
        """CUDA device indices of the last gradients."""
        self._hooks, self._index_of = context.hooks, context.models.discovery.register_optimizer
        self._times, self._aside, self.effects = times, effects.aside, effects

    @property
    def every(self) -> int:
        """The interval, in steps, at which norms are measured."""
        return 1 if self._every_step else self._cadence.every

    @property
    def _every_step(self) -> bool:
        """Whether the user requested something that needs every step, regardless of cost."""
        followed = self.latest.receiver is not None or self.latest.judge is not None
        return followed or self.micro_steps.on or self.bad_steps.pauses

    @property
    def dropped(self) -> int:
        """Number of steps and micro-steps of which something is unknown: a device was busy with earlier readings or had no
        memory, or the figures were not emitted in time."""
        delivered = self.losses.dropped + self.latest.dropped
        return self.without_room + self._meter.dropped + self._figures.dropped + self.micro_steps.dropped + delivered

    def begin_step(self, executed: int, *, wanted: bool, expected: bool = False) -> None:
        """Begin the step after `executed` steps. It is sampled if `wanted`; if `expected`, the user will see it."""
        self._wanted = wanted
        self._cadence.step_time.has_several_optimizers = self._view.round_length > 1
        may = not self._hooks.is_off("gradient norms")
        is_requested = wanted or expected or self._every_step or self._figures.is_requested
        self.is_due = may and (is_requested or not self._cadence.steps_until(executed + 1))
        self.clippings.begin(on=self.is_due, examines=may and self.effects.examines(is_sampled=wanted))
        self.poll()

    @property
    def needs_every_step(self) -> bool:
        """Whether every step needs more than norms and loss, and must not be buffered.

        Behind a loss scaler every step needs a check, since it may be skipped.
        """
        return self.losses.scale.is_in_use or self._every_step or self._figures.is_requested

    def poll(self) -> None:
        """Deliver the readings that a device has finished."""
        self.losses.poll()
        self._meter.poll()
        for name, part in (("device times", self._times), ("micro-steps", self.micro_steps)):
            if part.under_way:
                with self._hooks.guarded(name):
                    part.poll()
        self._figures.poll()

    def wait(self) -> None:
        """Wait for the device, since the user wants to pause the run at the first step that is not finite."""
        with self._hooks.guarded("gradient norms"):
            self._meter.finish()
        with self._hooks.guarded("first bad step"):
            self.bad_steps.finish()

    def follow_ranks(self, ranks: int) -> None:
        """Measure the same steps as the other `ranks`: norms of parameters that ranks share are combined by their squares."""
        self._cadence.has_common_steps = ranks > 1
        self.latest.has_other_ranks = ranks > 1

    def follow(self, receiver: Callable[[GradNormSample], None] | None) -> None:
        """Measure every step, and pass each sample to `receiver`; None ends this."""
        self.latest.receiver = receiver

    def watch(self, paths: tuple[str, ...]) -> CommandResult:
        """Collect histograms of these parameters from the next step on."""
        self._figures.watch(paths)
        return CommandResult("measure gradients in detail", ())

    def copy_losses(self) -> None:
        """Begin to copy the loss of a backward that has ended, if it is on a device."""
        self.losses.backward_ended()
        # It may have begun as a buffered one.
        self.buffered.backward_ended()

    def on_backward_post(self, step: int) -> None:
        """Measure the micro-step after a backward that accumulates for `step`."""
        with self._aside():
            if operations_are_observed():
                return
            if not has_room(self._devices):
                self.without_room += 1
                return
            with of_this_process.apart(self._devices), self._times.own():
                parameters = (parameter for _, parameter in self._view.tree.live_parameters())
                self.micro_steps.ended(step, parameters, self.losses.scale.factor())

    def measure(
        self, step: int, optimizer: Optimizer | None, *, has_run: bool = False, loss: LossReading | None = None
    ) -> None:
        """Measure the gradients that `optimizer` (None: the script itself) applies as `step`.

        With `has_run` the parameters were already updated, or there is no optimizer's step. `loss` is that of the step, by
        default the present one. Nothing is measured where the script would observe gradtui's operations.
        """
        with self._aside():
            if not operations_are_observed():
                self._measure(step, optimizer, has_run, loss)

    def measure_late(self, step: int, optimizer: Optimizer | None) -> None:
        """Measure the newest step after its end, if its gradients are still as they were applied. May wait for the device."""
        # A fused optimizer does not unscale its gradients.
        is_still_scaled = self.losses.scale.is_in_use and getattr(optimizer, "_step_supports_amp_scaling", False)
        if step <= self.newest or is_still_scaled or self.clippings.is_late or not self.has_gradients(optimizer):
            return
        self._wanted, self._late = False, step
        # Its loss was delivered when it ended.
        self.losses.step.forget()
        self.measure(step, optimizer, has_run=True)
        self._is_read = False
        self._meter.finish()

    def _reading_begins(self, step: int, optimizer: Optimizer | None, *, has_run: bool) -> None:
        self._is_read = False
        # A script without an optimizer has not yet updated the weights when its backward ends.
        has_moved = has_run and optimizer is not None
        with self._hooks.guarded("first bad step"):
            self.bad_steps.measuring(step, optimizer, has_run=has_moved)
        self.newest = step
        self._cadence.was_read(step)

    def _measure(self, step: int, optimizer: Optimizer | None, has_run: bool, loss: LossReading | None) -> None:
        loss = loss if loss is not None else self.losses.step.reading(optimizer)
        self._reading_begins(step, optimizer, has_run=has_run)
        scale = getattr(optimizer, "grad_scale", None)
        scale = scale if isinstance(scale, torch.Tensor) else None
        read = self.buffered.read(optimizer) if optimizer is not None and scale is None else None
        if read is not None and optimizer is not None:
            self._devices = set()
            self._norms_read(self._index_of(optimizer), step, self.buffered.with_clipping(read), loss)
            if self._wanted or self._figures.is_requested:
                self._figures.before_step(step, optimizer, None, has_run=has_run, is_sampled=self._wanted)
        else:
            self._measure_on_devices(step, optimizer, scale, loss, has_run=has_run)

    def _measure_on_devices(
        self,
        step: int,
        optimizer: Optimizer | None,
        scale: torch.Tensor | None,
        loss: LossReading,
        *,
        has_run: bool,
        batches: Sequence[BatchPlace] = (),
    ) -> None:
        """Measure gradients that may be on devices, sparse or distributed."""
        began = thread_time_ns()
        applied = self._applied.of(optimizer)
        found = [(at, each.grad) for at, each in applied if each.grad is not None and each.grad.numel()]
        gradients = with_values(found)
        absent = [at for at, each in applied if at >= 0 and each.grad is None] if len(found) < len(applied) else []
        clipping = self.clippings.only if optimizer is None else self.clippings.take()
        self._devices = {gradient.device.index for _, gradient in gradients if gradient.is_cuda}
        if not has_room(self._devices):
            self.without_room += 1
            return
        with of_this_process.apart(self._devices), self._times.own():
            index = self._index_of(optimizer) if optimizer is not None else -1
            deliver = partial(self._deliver, optimizer=index, loss=loss, batches=batches or loss.batches)
            self._is_read = self._meter.measure(step, gradients, scale, clipping, absent, deliver)
            if not self._wanted:
                # The cost of a sampled step is that of the sample.
                self._cadence.add_cost((thread_time_ns() - began) / 1e9)
            if self._wanted or self._figures.is_requested:
                self._figures.before_step(step, optimizer, scale, has_run=has_run, is_sampled=self._wanted)

    def _measure_by_hand(self, step: int) -> bool:
        """Measure the gradients of a step without an optimizer. Return whether a reading will be delivered."""
        self._is_read = False
        # The first reading has the loss. A later one is made when the step has ended, and its loss is delivered.
        self.measure(step, None, has_run=True, loss=NO_LOSS if step <= self._counter.steps else None)
        return self._is_read

    def _clipped(self) -> None:
        if self.by_hand.step:
            self.by_hand.read()
            # This reading is not of the next step.
            self._is_read = False
            self._figures.after_step()

    def end_by_hand(self) -> None:
        """End a step without an optimizer, when whatever follows it begins."""
        # Statistics other than norms would describe what the script has left in `.grad`, such as zeros.
        self._wanted = False
        self.by_hand.end()
        self._is_read = False

    def stepped(self, step: int, index: int, optimizer: Optimizer | None, *, is_skipped: bool = False) -> None:
        """End `step` of the optimizer with this index, whether it was executed or skipped."""
        self.clippings.is_late = False
        self.losses.ended(step, index, optimizer, is_delivered=self._is_read)
        self._is_read = False
        self.losses.scale.stepped()
        self.spikes.stepped(index)
        self.micro_steps.on_step_post()
        if not self._figures.is_open and not self.bad_steps.pauses:
            with self._hooks.guarded("first bad step"):
                self.bad_steps.stepped(is_skipped=is_skipped)
            return
        with self._aside(), of_this_process.apart(self._devices), self._times.own():
            with self._hooks.guarded("first bad step"):
                self.bad_steps.stepped(is_skipped=is_skipped)
            if not operations_are_observed():
                self._figures.after_step()

    def _measure_buffered(self, optimizer: Optimizer) -> None:
        step = self._counter.steps + self.buffered.buffer.steps + 1
        self._reading_begins(step, optimizer, has_run=False)
        # Its loss is among the buffered ones.
        self._measure_on_devices(step, optimizer, None, NO_LOSS, has_run=False, batches=self.buffered.batches)
        self._is_read = False

    def replay_buffered(self, kinds: Sequence[int], executed: int, optimizer: Optimizer | None, index: int) -> None:
        """Interpret what was read during buffered events of these kinds.

        `executed` steps had ended before them. `optimizer` has made the steps; its index is `index`.
        """
        read = self.buffered.take()
        # The cost of reading a loss is about that of a hook.
        self._hooks.charge(self._hooks.hidden_ns * len(read.losses))
        with self._hooks.guarded("spikes"):
            self.spikes.replay([each for each in read.losses if isinstance(each, float)], kinds)
        replay = BufferedReplay(
            self.losses.step,
            self.buffered.memory,
            index,
            partial(self._buffered_norms, optimizer, index),
            partial(self._buffered_step_ended, index),
            partial(self.latest.losses, index),
        )
        step = replay.run(kinds, read, executed)
        self.spikes.replayed()
        if self.buffered.buffer.between:
            self.buffered.begin(step, index)
        # If an unusual event ends the buffering within a step, that step is measured as it would have been.
        self.is_due = self.buffered.is_due

    def _buffered_step_ended(self, index: int, step: int) -> None:
        self.losses.ended(step, index, is_delivered=self._is_read)
        self._is_read = False

    def _buffered_norms(
        self,
        optimizer: Optimizer | None,
        index: int,
        step: int,
        read: BufferedNorms,
        loss: LossReading | None,
    ) -> None:
        self.newest = step
        self._cadence.was_read(step)
        with self._hooks.guarded("first bad step"):
            self.bad_steps.measuring(step, optimizer, has_run=True)
        self._norms_read(index, step, read, loss if loss is not None else NO_LOSS)
        if loss is None:
            # What follows belongs to another step.
            self._is_read = False

    def _norms_read(self, optimizer: int, step: int, read: BufferedNorms, loss: LossReading) -> None:
        began = thread_time_ns()
        if step == self._late and not any(read.norms):
            return
        self._is_read = loss.is_there
        sample = read.sample(step, optimizer, loss)
        with self._hooks.guarded("first bad step"):
            self.bad_steps.read(sample)
        with self._hooks.guarded("spikes"):
            self.spikes.on_norm(sample)
        self.latest.applied(sample)
        if not self._wanted:
            # The cost of a sampled step is that of the sample.
            self._cadence.add_cost((read.nanoseconds + thread_time_ns() - began) / 1e9)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new parameter indices. The norms of parameters that were listed before remain known."""
        self.latest.tree_changed(moved)
        self._meter.tree_changed(moved)
        self._figures.tree_changed()
        self.bad_steps.tree_changed(moved)
        self.spikes.tree_changed()
        self.by_hand.tree_changed()

    def catch_up(self) -> None:
        """Deliver the readings under way and any per-parameter norms that were held back. May wait for the device."""
        self._meter.finish()
        self.losses.finish()
        with self._hooks.guarded("micro-steps"):
            self.micro_steps.finish()
        self.latest.catch_up()

    def has_gradients(self, optimizer: Optimizer | None) -> bool:
        """Return whether any parameter of an optimizer (None: of the models) still has a gradient."""
        return any(parameter.grad is not None for _, parameter in self._applied.of(optimizer))

    def _all_gradients(self) -> list[torch.Tensor]:
        return [each.grad for _, each in self._view.tree.live_parameters() if each.is_leaf and each.grad is not None]

    def _deliver(
        self,
        reading: GradNormSample,
        optimizer: int = -1,
        loss: LossReading = NO_LOSS,
        batches: Sequence[BatchPlace] = (),
    ) -> None:
        if reading.step == self._late and not reading.total:
            return
        value = loss.value if loss.is_there else None
        if not loss.is_there:
            # It is on another device than the gradients.
            self.losses.deliver(reading.step, optimizer, loss)
        loss_of = loss.of if value is not None else ""
        reading = replace(reading, loss=value, loss_of=loss_of, optimizer=optimizer, batches=batches)
        if value is not None:
            self.losses.note_late(reading.step, loss, value)
        if not self.by_hand.takes(reading):
            with self._hooks.guarded("first bad step"):
                self.bad_steps.read(reading)
            with self._hooks.guarded("spikes"):
                self.spikes.on_norm(reading)
            self.latest.applied(reading)

    def _saw_first(self, reading: GradNormSample) -> None:
        with self._hooks.guarded("first bad step"):
            self.bad_steps.read(reading)
        self.latest.backward_norms(reading)
