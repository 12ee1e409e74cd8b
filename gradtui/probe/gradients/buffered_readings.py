"""Read the loss and the gradient norms of steps whose hook events are only buffered (`steps/hook_buffer.py`).

Between two hooks torch's own code evicts gradtui's from the processor's caches, so each function of gradtui that runs at every
step makes it measurably longer. These methods read numbers and store them. `GradNormCollector.replay_buffered` interprets them
later, together. Runs on the training thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from time import thread_time_ns
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.probe.gradients.applied_parameters import AppliedParameters
from gradtui.probe.gradients.clipping import Clippings
from gradtui.probe.gradients.grad_norms import GradNormSample, norms_on_cpu, total_norm
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.gradients.spikes import SpikeDetector
from gradtui.probe.gradients.step_loss import DeviceLoss, LossReading, Value, loss_of, value_of
from gradtui.probe.memory import StepTotalsReader, Total
from gradtui.probe.steps import BatchPlace, Epochs, HookEventBuffer, ProbeContext
from gradtui.probe.torch_private.loss_factor import LossFactor, factor_of
from gradtui.probe.torch_private.private_names import (
    modes_are_active,
    operations_are_observed,
    set_grad_enabled,
)
from gradtui.system.no_collection import no_collection

_TENSOR = torch.Tensor
_MAX_EARLY_FLUSHES = 8
"""How many times in a run the buffer is replayed early because a parameter has lost its gradient."""
MANY = 256
"""From this number of new objects on, Python's garbage collector might visit all objects of the process."""


class BufferedNorms(NamedTuple):
    """The norms of one step."""

    indices: list[int]
    absent: list[int]
    norms: list[float]
    before_clipping: float | None
    clipped_at: float | None
    nanoseconds: int
    """CPU time that reading them took."""

    def sample(self, step: int, optimizer: int, loss: LossReading) -> GradNormSample:
        """Return the sample of the step of the optimizer with this index. The loss counts if it has arrived."""
        value = loss.value if loss.is_there else None
        with no_collection() if len(self.norms) >= MANY else nullcontext():
            pairs = [*zip(self.indices, self.norms)]
        return GradNormSample(
            step, total_norm(self.norms), value, pairs, self.before_clipping, self.clipped_at, optimizer=optimizer,
            loss_of=loss.of, absent=self.absent,
        )  # fmt: skip


class BufferedFigures(NamedTuple):
    """What was read since the last replay."""

    losses: list[Value | None]
    """One for each buffered backward; None if it is not one real number."""
    factors: dict[int, LossFactor]
    """By number of the backward: by what the script has multiplied its loss (`StepLoss.add`)."""
    norms: dict[int, BufferedNorms]
    """By the number of buffered events before the step."""
    totals: dict[int, Total]
    """By the number of buffered events before the end of a phase: the total then."""


class BufferedReadings:
    """Reads loss and norms, and stores them until the buffer is replayed.

    The wrappers of torch's functions call `on_backward` at each buffered backward, and `on_step` before a step if `is_due`. At
    the end of a step they count `unread` down. `measure` measures, at once, gradients that are not dense tensors on the CPU.
    """

    __slots__ = (
        "_absent", "_are_few", "_detector", "_early_flushes", "_every", "_fences", "_highest", "_hooks", "_loss",
        "_memory_every", "_norm",
        "applied", "backwards", "buffer",
        "clippings", "epochs", "factors", "in_backward", "interval", "is_due", "losses", "measure", "memory", "norms",
        "reads_memory", "spikes", "totals", "unread", "unread_memory",
    )  # fmt: skip

    def __init__(
        self,
        context: ProbeContext,
        buffer: HookEventBuffer,
        memory: StepTotalsReader,
        detector: NonFiniteDetector,
        spikes: SpikeDetector,
    ) -> None:
        self.buffer, self.memory, self._detector = buffer, memory, detector
        self.spikes, self._loss, self._norm = spikes, spikes.loss, spikes.norm
        self._hooks, self.interval = context.hooks, context.norms_interval
        self.applied = AppliedParameters(context.models)
        self.clippings = Clippings(detector.clipping)
        self.measure: Callable[[Optimizer], None] = lambda _: None
        self.epochs: Epochs | None = None
        self._every = self._memory_every = 1
        self._absent: list[int] = []
        """The parameters without a gradient in the newest reading."""
        self._early_flushes = 0
        self._are_few = True
        """Whether the last reading was of few gradients."""
        self.is_due = False
        """Whether the norms of the current step are read."""
        self.unread = 0
        """The number of steps before the next one that is read: 0 if that is the current one."""
        self.reads_memory, self.unread_memory = False, 0
        """The same of the memory totals."""
        self.totals: dict[int, Total] = {}
        self._highest, self._fences = 0, (math.inf, math.inf)
        """The highest total of the current step, and those above which a step without and with an exact peak stands out."""
        self.backwards = 0
        """The number of backwards of the current step so far."""
        self.losses: list[Value | None] = []
        self.in_backward: DeviceLoss | None = None
        """The loss of the backward that is running, if it is on a device."""
        self.factors: dict[int, LossFactor] = {}
        self.norms: dict[int, BufferedNorms] = {}

    def begin(self, step: int, optimizer: int) -> None:
        """Begin with `step`, or continue with it after the buffer was replayed between two steps.

        `optimizer` is the index of the optimizer that makes the steps.
        """
        self._every, self.unread = self.interval.every, self.interval.steps_until(step)
        self.is_due = self.clippings.on = self.unread <= 0
        memory = self.memory.interval
        self._memory_every, self.unread_memory = memory.every, memory.steps_until(step)
        self.reads_memory = self.unread_memory <= 0
        self.clippings.examines = False
        self.backwards = self._highest = 0
        self._fences = self.memory.fences(optimizer)

    def phase_ended(self) -> Total:
        """Read the memory total at the end of a phase, before the hook event of that end is buffered."""
        began = thread_time_ns()
        total = now, peak, _ = self.memory.read()
        self.totals[len(self.buffer)] = total
        # With an interval a peak may be that of a step that was not read.
        self._highest = max(self._highest, now or 0, (peak or 0) if self._memory_every == 1 else 0)
        self.memory.spent_ns += thread_time_ns() - began
        return total

    def last_phase_ended(self) -> None:
        """Read the memory total at the end of the step."""
        peak = self.phase_ended().highest
        self.memory.charge()
        self.unread_memory = self._memory_every
        if self._highest > self._fences[peak is not None and self._memory_every == 1]:
            # The step stands out, so the next one is sampled.
            self.buffer.steps_left = 0
        self._highest = 0

    def next_step(self) -> None:
        """Begin the next step: `unread` and `unread_memory` have been counted down."""
        self.is_due = self.clippings.on = self.unread <= 0
        self.reads_memory = self.unread_memory <= 0

    @property
    def batches(self) -> tuple[BatchPlace, ...]:
        """Where the batches of the present step come from, if its newest loss is of a device and they are known."""
        newest = self.losses[-1] if self.losses else None
        return newest.batches if isinstance(newest, DeviceLoss) else ()

    def take(self) -> BufferedFigures:
        """Return what was read, and begin anew."""
        taken = BufferedFigures(self.losses, self.factors, self.norms, self.totals)
        self.losses, self.factors, self.norms, self.totals = [], {}, {}, {}
        return taken

    def on_backward(self, outputs: Any) -> bool:
        """Read the loss. Return False if it has stopped being finite, or is a spike: the backward must not be buffered then."""
        # Inlined for one float on the CPU, as it nearly always is.
        if type(outputs) is tuple and len(outputs) == 1 and not self.backwards:
            first = outputs[0]
            try:
                # A mode of the script would see even that `is_cpu` is read.
                if type(first) is _TENSOR and not modes_are_active() and first.is_cpu and first.numel() == 1:
                    value = first.item()
                    # NaN and Inf are not zero if they are subtracted from themselves.
                    if type(value) is float and value - value == 0 and value <= self._loss.limit:
                        if self.is_due:
                            self._detector.note_root(first)
                        self.backwards = 1
                        self.losses.append(value)
                        return True
            except Exception:  # noqa: BLE001 - `_read_loss` fails in the same way, and that is reported
                pass
        answer = self._hooks.read("gradient norms", self._read_loss, outputs)
        if answer is None:
            # A failure is reported, and this backward has no loss.
            self.losses.append(None)
        return answer is not False

    def _read_loss(self, outputs: Any) -> bool:
        value: Value | None = None
        if (loss := loss_of(outputs)) is not None:
            value = value_of(loss)
            if isinstance(value, float):
                if self._stands_out(value, self._loss.limit):
                    self.is_due = True
                    return False
                self._detector.note_root(loss)
            else:
                value.batches = self.epochs.places(self.buffer.newest) if self.epochs is not None else ()
                self.in_backward = value
            if self.backwards and (factor := factor_of(outputs)) is not None:
                self.factors[len(self.losses)] = factor
        self.backwards += 1
        self.losses.append(value)
        return True

    def backward_ended(self) -> None:
        """Begin to copy the loss from a device, if `in_backward` is one."""
        loss, self.in_backward = self.in_backward, None
        if loss is not None:
            loss.backward_ended()

    def on_step(self, optimizer: Optimizer) -> bool:
        """Read the norms of the gradients that `optimizer` is about to apply.

        Return False, and keep nothing, if some have stopped being finite or their norm is a spike: the step must not be
        buffered then.
        """
        if operations_are_observed():
            return True
        # As `read`, without its call.
        read = self._read(optimizer) if self._are_few else self._read_many(optimizer)
        if read is None:
            if self.norms:
                # The norms of earlier steps are to be delivered first.
                self.is_due = True
                return False
            self.measure(optimizer)
        else:
            norm, limit = math.hypot(*read.norms), self._norm.limit
            if self.clippings.calls:
                norm = self.clippings.norm(norm)
            if (norm - norm != 0 or norm > limit) and self._stands_out(norm, limit):
                self.is_due = True
                return False
            if read.absent is not self._absent:
                self._absent_changed(read.absent)
            self.norms[len(self.buffer)] = self.with_clipping(read)
        self.unread = self._every
        return True

    def _stands_out(self, value: float, limit: float) -> bool:
        """Return whether a value is not finite, the first one of them, or is a spike."""
        return limit < value < math.inf or (value - value != 0 and not self._detector.is_bad)

    def _absent_changed(self, absent: list[int]) -> None:
        """Replay the buffer when this step ends if further parameters have no gradient: then the next steps are sampled."""
        if len(absent) > len(self._absent) and self._early_flushes < _MAX_EARLY_FLUSHES:
            self._early_flushes += 1
            self.buffer.flush_at = 0
        self._absent = absent

    def read(self, optimizer: Optimizer) -> BufferedNorms | None:
        """Return the norms of the gradients of `optimizer`; None if they are not all dense real tensors on the CPU."""
        return self._read(optimizer) if self._are_few else self._read_many(optimizer)

    def _read_many(self, optimizer: Optimizer) -> BufferedNorms | None:
        with no_collection():
            return self._read(optimizer)

    def _read(self, optimizer: Optimizer) -> BufferedNorms | None:
        # CPU time: what other processes take of this core is no cost of a reading.
        began = thread_time_ns()
        known, gradients = self.applied.dense_gradients(optimizer)
        self._are_few = len(gradients) < MANY
        if known.groups is None:
            return None
        was_enabled = torch.is_grad_enabled()
        set_grad_enabled(False)
        try:
            norms = norms_on_cpu(gradients, known.groups)
        except NotImplementedError:  # a sparse gradient
            return None
        finally:
            set_grad_enabled(was_enabled)
        return BufferedNorms(known.indices, known.absent, norms, None, None, thread_time_ns() - began)

    def with_clipping(self, read: BufferedNorms) -> BufferedNorms:
        """Add what the script's clipping call has returned, which is forgotten then. A number on a device is not waited for."""
        clipping = self.clippings.take()
        if clipping is None or not clipping.total.is_cpu:
            return read
        return read._replace(before_clipping=float(clipping.total), clipped_at=clipping.threshold)
