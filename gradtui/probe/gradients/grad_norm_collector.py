"""Decide at which steps gradients are measured, and measure them. Runs on the training thread."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.gradients.clipping import Clippings
from gradtui.probe.gradients.grad_histograms import GradHistograms
from gradtui.probe.gradients.grad_norms import GradNorms, GradNormSample, unscaled
from gradtui.probe.gradients.grad_stats import GradStats
from gradtui.probe.gradients.latest_norms import ROWS_NS, LatestNorms
from gradtui.probe.gradients.manual_steps import ManualSteps
from gradtui.probe.gradients.micro_steps import MicroSteps
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.memory import has_room, of_this_process
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import ProbeContext, SamplingSchedule, power_of_two
from gradtui.probe.steps import DeviceTimes, Epochs
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import loss_scale, operations_are_observed
from gradtui.protocol.events import Event, GradientFiguresMeasured, GradientHistogramsMeasured

_AFTER_A_CHANGE = 8
"""Steps measured regardless of cost after the models have changed."""


class GradNormCollector:
    """Measures the gradients that an optimizer applies, and the loss they came from.

    `aside` returns a context in which gradtui's own operations are not part of a memory profile.
    """

    _without_room = 0
    """Number of steps and micro-steps not measured because a device had no free memory."""

    def __init__(
        self,
        context: ProbeContext,
        cadence: SamplingSchedule,
        bad_steps: NonFiniteDetector,
        times: DeviceTimes,
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.is_due = True
        """Whether the current step is measured."""
        self._wanted = True
        """The current step is sampled, and the sampled step accounts for the cost of measuring."""
        self._is_free = True
        """The sampling schedule of norms does not account for the cost of this measurement."""
        self._newest = 0
        """The step that was measured last."""
        self._late = 0
        """A step whose gradients were read after its end, when the script may have set them to zero."""
        self.epochs = Epochs(context.counter)
        self.latest = LatestNorms(context)
        by_hand = partial(self.measure, optimizer=None, has_run=True)
        self.by_hand = ManualSteps(self._all_gradients, by_hand, self._saw_first, self.latest.applied)
        self.bad_steps = bad_steps
        self.clippings = Clippings(bad_steps.clipping, self._clipped)
        self.micro_steps = MicroSteps(context)
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._meter = GradNorms(self._deliver)
        self._statistics = GradStats(partial(self._emit_figures, GradientFiguresMeasured))
        self._watched = GradHistograms(partial(self._emit_figures, GradientHistogramsMeasured))
        self._devices: set[int] = set()
        """CUDA device indices of the last gradients."""
        self._hooks = context.hooks
        self._times, self._aside = times, aside
        self._polled = (
            ("device times", self._times),
            ("micro-steps", self.micro_steps),
            ("gradient figures", self._statistics),
            ("gradient histograms", self._watched),
        )
        self._cadence = cadence
        self._reading_ns = 0
        """Nanoseconds spent reading the loss and the norms of the current step."""
        self._loss: torch.Tensor | HostCopy | None = None
        """The loss of the current step, in memory that does not belong to the script."""
        self._scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._scaled_by: weakref.ref[Any] | None = None

    @property
    def every(self) -> int:
        """The interval, in steps, at which norms are measured."""
        return 1 if self._every_step else self._cadence.every

    @property
    def _every_step(self) -> bool:
        """Whether the user requested something that needs every step, regardless of cost."""
        return self.micro_steps.on or self.bad_steps.pauses or self.latest.receiver is not None

    @property
    def dropped(self) -> int:
        """Number of steps and micro-steps not measured because a device was busy with earlier readings or had no memory."""
        dropped = self._meter.dropped + self._statistics.dropped + self._watched.dropped
        return self._without_room + dropped + self.micro_steps.dropped

    @property
    def is_scaled(self) -> bool:
        """Whether the script has an enabled GradScaler."""
        return any(scaler.is_enabled() for scaler in self._scalers)

    def on_scaler(self, scaler: Any) -> None:
        """Register a new GradScaler."""
        self._scalers.add(scaler)

    def on_scaling(self, scaler: Any) -> None:
        """Record that a GradScaler multiplies a loss of this step. The loss is shown without that factor."""
        self._scaled_by = weakref.ref(scaler)
        if not self._scalers:
            # The scaler was constructed before the probe was installed.
            self._scalers.add(scaler)

    def begin_step(self, executed: int, *, wanted: bool, expected: bool, waits: bool = False) -> None:
        """Begin the step after `executed` steps. The last step of an epoch is measured early: it may be the last of the run.

        `wanted`: the step is sampled. `expected`: the user will see the step. `waits`: it is too early for a measurement,
        except of a step that the user follows or that may be the last one.
        """
        if self.is_due:
            self._cadence.record_cost(
                self._reading_ns / 1e9, self._times.newest_excess[False], for_another=self._is_free
            )
        self._reading_ns = 0
        self._wanted = wanted
        self._is_free = wanted or expected or self._every_step
        early = self.epochs.goes_on()
        if self._ends_epoch_within(executed) == 0:
            early = True
            self.epochs.ends()
        may = not waits or early or self._is_free or self._watched.is_requested
        may = may and not self._hooks.is_off("gradient norms")
        free, length = self._is_free, self._view.round_length
        self.is_due = may and self._cadence.is_due(executed, length, wanted=free, early=early)
        self.clippings.begin(on=self.is_due)
        self.poll()

    def steps_until_due(self, executed: int) -> int:
        """Return how many steps after the next one are not to be measured; negative if the next one is.

        Behind a loss scaler every step needs a check, since it may be skipped.
        """
        if self.is_due or self.is_scaled or self._every_step:
            return -1
        steps_until_due, left = self._cadence.steps_until_due(executed), self._ends_epoch_within(executed)
        return min(steps_until_due, steps_until_due if left is None else left - 1)

    def _ends_epoch_within(self, executed: int) -> int | None:
        """Return how many steps after the next one an epoch ends whose last step is to be measured; None if there is none."""
        left, steps = self.epochs.steps_left, self.epochs.steps
        if left is None or self._view.round_length > 1:
            return None
        # Not every epoch is measured if epochs are short.
        return left + steps * math.ceil(self._cadence.too_early(executed + left, steps) / steps)

    def poll(self) -> None:
        """Deliver the readings that a device has finished."""
        self._meter.poll()
        for name, part in self._polled:
            if part.under_way:
                with self._hooks.guarded(name):
                    part.poll()

    def wait(self) -> None:
        """Wait for the device, since the user wants to pause the run at the first step that is not finite."""
        with self._hooks.guarded("gradient norms"):
            self._meter.finish()
        with self._hooks.guarded("first bad step"):
            self.bad_steps.finish()

    def follow_ranks(self, ranks: int) -> None:
        """Measure the same steps as the other `ranks`: norms of parameters that ranks share are combined by their squares."""
        self._cadence.has_common_rounds = ranks > 1
        self.latest.rows_every = self._rows_every if ranks > 1 else None

    def _rows_every(self) -> int:
        """Return the interval in steps at which norms of all parameters are emitted, if other ranks emit theirs too."""
        return power_of_two(ROWS_NS / 1e9 / max(self._cadence.step_time.typical, 1e-5))

    def follow(self, receiver: Callable[[GradNormSample], None] | None) -> None:
        """Measure every step, and pass each sample to `receiver`; None ends this."""
        self.latest.receiver = receiver

    def watch(self, paths: tuple[str, ...]) -> None:
        """Collect histograms of these parameters from now on, and measure the next step in any case."""
        self._watched.watch(paths, self._view.round_length)
        if paths:
            self._cadence.force(self._view.round_length)

    def on_loss(self, outputs: Any) -> None:
        """Read the loss from the tensors that backward is called on. It is copied to the host immediately."""
        began = perf_counter_ns()
        self._see_loss(outputs)
        self._reading_ns += perf_counter_ns() - began

    def _see_loss(self, outputs: Any) -> None:
        self._loss = None
        first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
        if operations_are_observed() or not isinstance(first, torch.Tensor) or first.numel() != 1 or first.is_complex():
            return
        loss = first.detach()
        scale = self.loss_scale()
        if scale is not None:
            loss = unscaled(loss, scale)
        self._loss = HostCopy(loss.reshape(1)) if loss.is_cuda else loss.clone()
        scaled = self._scaled_by is not None and self._scaled_by() is not None
        with self._hooks.guarded("first bad step"):
            self.bad_steps.on_loss(loss, outputs, is_scaled=scaled)

    def on_backward_post(self, step: int) -> None:
        """Measure the micro-step after a backward that accumulates for `step`."""
        with self._aside():
            if operations_are_observed():
                return
            if not has_room(self._devices):
                self._without_room += 1
                return
            with of_this_process.apart(self._devices), self._times.own():
                parameters = (parameter for _, parameter in self._view.tree.live_parameters())
                self.micro_steps.ended(step, parameters, self.loss_scale())

    def measure(self, step: int, optimizer: Optimizer | None, *, has_run: bool = False) -> None:
        """Measure the gradients that `optimizer` (None: the script itself) applies as `step`.

        With `has_run` the parameters were already updated, or there is no optimizer's step. Nothing is measured where the
        script would observe gradtui's operations.
        """
        began = perf_counter_ns()
        with self._aside():
            if not operations_are_observed():
                self._measure(step, optimizer, has_run)
        self._reading_ns += perf_counter_ns() - began

    def measure_late(self, step: int, optimizer: Optimizer | None) -> bool:
        """Measure the newest step after its end if it was not measured: its gradients may still be there.

        May wait for the device. Return whether gradients were there.
        """
        # A fused optimizer does not unscale its gradients.
        is_still_scaled = self.is_scaled and getattr(optimizer, "_step_supports_amp_scaling", False)
        if step <= self._newest or is_still_scaled:
            return False
        if all(parameter.grad is None for _, parameter in self._applied_by(optimizer)):
            return False
        self._loss, self._wanted, self._late = None, False, step
        self.measure(step, optimizer, has_run=True)
        self._meter.finish()
        return True

    def _measure(self, step: int, optimizer: Optimizer | None, has_run: bool) -> None:
        self._newest = step
        # A script without an optimizer has not yet updated the weights when its backward ends.
        has_moved = has_run and optimizer is not None
        with self._hooks.guarded("first bad step"):
            self.bad_steps.measuring(step, optimizer, has_run=has_moved)
        applied = self._applied_by(optimizer)
        gradients = self._gradients(applied)
        clipping = self.clippings.only if optimizer is None else self.clippings.take()
        scale = getattr(optimizer, "grad_scale", None)
        scale = scale if isinstance(scale, torch.Tensor) else None
        self._devices = {gradient.device.index for _, gradient in gradients if gradient.is_cuda}
        if not has_room(self._devices):
            self._without_room += 1
            return
        with of_this_process.apart(self._devices), self._times.own():
            self._meter.measure(step, gradients, self._loss, scale, clipping)
            self._loss = None
            if self._wanted or self._watched.is_requested:
                watched = self._watched.indices(self._view.tree)
                known = [each for each in applied if each[0] >= 0 and (self._wanted or each[0] in watched)]
                with self._hooks.guarded("gradient figures"):
                    self._statistics.before_step(step, known, scale, has_run, watched)
                with self._hooks.guarded("gradient histograms"):
                    self._watched.before_step(step, known, scale)

    def _clipped(self) -> None:
        if self.by_hand.step:
            self.by_hand.read()
            self._statistics.after_step()

    def end_by_hand(self) -> None:
        """End a step without an optimizer, when whatever follows it begins."""
        # Statistics other than norms would describe what the script has left in `.grad`, such as zeros.
        self._wanted = False
        self.by_hand.end()

    def stepped(self) -> None:
        """End the step, whether it was executed or skipped."""
        self._loss = self._scaled_by = None
        self.micro_steps.on_step_post()
        if not self._statistics.is_open and not self.bad_steps.pauses:
            with self._hooks.guarded("first bad step"):
                self.bad_steps.stepped()
            return
        with self._aside(), of_this_process.apart(self._devices), self._times.own():
            with self._hooks.guarded("first bad step"):
                self.bad_steps.stepped()
            if not operations_are_observed():
                with self._hooks.guarded("gradient figures"):
                    self._statistics.after_step()

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new parameter indices. The norms of parameters that were listed before remain known."""
        self._cadence.force(_AFTER_A_CHANGE)
        self.latest.tree_changed(moved)
        self._meter.tree_changed(moved)
        self._statistics.tree_changed()
        self.bad_steps.tree_changed(moved)
        self._watched.tree_changed()
        self.by_hand.tree_changed()

    def catch_up(self) -> None:
        """Deliver the readings under way and any per-parameter norms that were held back. May wait for the device."""
        self._meter.finish()
        with self._hooks.guarded("micro-steps"):
            self.micro_steps.finish()
        self.latest.catch_up()

    def _all_gradients(self) -> list[torch.Tensor]:
        gradients = (parameter.grad for _, parameter in self._view.tree.live_parameters())
        return [gradient for gradient in gradients if gradient is not None]

    def loss_scale(self) -> torch.Tensor | None:
        """Return the factor by which a loss scaler multiplies the gradients of this step; None without one."""
        scaler = self._scaled_by() if self._scaled_by is not None else None
        return loss_scale(scaler) if scaler is not None else None

    def _gradients(self, applied: Iterable[tuple[int, torch.Tensor]]) -> list[tuple[int, torch.Tensor]]:
        found: list[tuple[int, torch.Tensor]] = []
        for index, parameter in applied:
            gradient = parameter.grad
            if gradient is not None and gradient.numel():
                found.append((index, gradient))
            elif index >= 0:
                self.latest.forget(index)
        return found

    def _applied_by(self, optimizer: Optimizer | None) -> list[tuple[int, torch.Tensor]]:
        """Return (index, parameter) of the parameters that are updated; the index is -1 for parameters of no known model."""
        tree = self._view.tree
        if optimizer is None:
            return list(tree.live_parameters())
        indices, references = tree.parameter_index.get, tree.parameter_refs
        # Inlined `ModuleTree.owns`.
        return [
            (index if index >= 0 and references[index]() is parameter else -1, parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            for index in (indices(id(parameter), -1),)
        ]

    def _deliver(self, reading: GradNormSample) -> None:
        if reading.step == self._late and not reading.total:
            return
        if not self.by_hand.takes(reading):
            with self._hooks.guarded("first bad step"):
                self.bad_steps.read(reading)
            self.latest.applied(reading)

    def _saw_first(self, reading: GradNormSample) -> None:
        with self._hooks.guarded("first bad step"):
            self.bad_steps.read(reading)
        self.latest.by_index.update(reading.norms)

    def _emit_figures(self, event: Callable[..., Event], step: int, figures: tuple[object, ...]) -> None:
        self._emit(event(self._clock.at(), step, figures, listing=self._view.tree.listing))
