"""Read the loss and the gradient norms of steps whose hook events are only buffered (`steps/hook_buffer.py`).

Between two hooks torch's own code evicts gradtui's from the processor's caches, so each function of gradtui that runs at every
step is felt. These methods read numbers and store them; `GradNormCollector.replay_buffered` interprets them later, together.
Runs on the training thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import thread_time_ns
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from gradtui.no_collection import no_collection
from gradtui.probe.gradients.applied_parameters import AppliedParameters, DenseGradients
from gradtui.probe.gradients.clipping import Clippings
from gradtui.probe.gradients.grad_norms import NormGroup, norms_on_cpu
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.gradients.step_loss import Value
from gradtui.probe.memory import READINGS, StepTotalsReader, Total
from gradtui.probe.runtime import ReadingInterval
from gradtui.probe.steps import HookEventBuffer
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import factor_of, operations_are_observed, set_grad_enabled

_MANY = 256
"""From this number of new tensors on, Python's garbage collector might visit all objects of the process."""


class BufferedLoss(NamedTuple):
    """The loss of one backward; None if it is not one real number."""

    value: Value | None
    factor: float | None
    """By what the script has multiplied it, if it is not the first one of its step (`StepLoss.add`)."""


class BufferedNorms(NamedTuple):
    """The norms of one step."""

    indices: list[int]
    absent: list[int]
    norms: list[float]
    total: float
    before_clipping: float | None
    clipped_at: float | None


class BufferedReadings:
    """Reads loss and norms, and stores them until the buffer is replayed.

    The wrappers of torch's functions call `on_backward` at each buffered backward, and `on_step` before a step if `is_due`. At
    the end of a step they count `unread` down. `measure` measures, at once, gradients that are not dense tensors on the CPU.
    """

    __slots__ = (
        "_applied", "_buffer", "_clippings", "_detector", "_every", "_highest", "_interval", "_measure", "_memory",
        "_memory_every", "backwards", "is_due", "losses", "norms", "reads_memory", "totals", "unread", "unread_memory",
    )  # fmt: skip

    def __init__(
        self,
        buffer: HookEventBuffer,
        applied: AppliedParameters,
        clippings: Clippings,
        detector: NonFiniteDetector,
        interval: ReadingInterval,
        memory: StepTotalsReader,
        measure: Callable[[Optimizer], None],
    ) -> None:
        self._buffer, self._applied, self._clippings = buffer, applied, clippings
        self._detector, self._interval, self._measure = detector, interval, measure
        self._memory = memory
        self._every = self._memory_every = 1
        self.is_due = False
        """Whether the norms of the current step are read."""
        self.unread = 0
        """The number of steps before the next one that is read: 0 if that is the current one."""
        self.reads_memory, self.unread_memory = False, 0
        """The same of the memory totals."""
        self.totals: dict[int, Total] = {}
        """By the number of buffered events before the end of a phase: the total then."""
        self._highest = 0
        """The highest total of the current step."""
        self.backwards = 0
        """The number of backwards of the current step so far."""
        self.losses: list[BufferedLoss] = []
        """One for each buffered backward."""
        self.norms: dict[int, BufferedNorms] = {}
        """By the number of buffered events before the step."""

    def begin(self, step: int) -> None:
        """Begin with `step`, or continue with it after the buffer was replayed."""
        self._every, self.unread = self._interval.every, self._interval.steps_until(step)
        self.is_due = self._clippings.on = self.unread <= 0
        memory = self._memory.interval
        self._memory_every, self.unread_memory = memory.every, memory.steps_until(step)
        self.reads_memory = self.unread_memory <= 0

    def phase_ended(self) -> None:
        """Read the memory total at the end of a phase, before the hook event of that end is buffered."""
        total = self.totals[len(self._buffer)] = self._memory.read()
        self._highest = max(self._highest, *(each or 0 for each in total))

    def last_phase_ended(self) -> None:
        """Read the memory total at the end of the step."""
        began = thread_time_ns()
        self.phase_ended()
        self._memory.interval.add_cost(READINGS * (thread_time_ns() - began) / 1e9)
        self.unread_memory = self._memory_every
        if self._highest > self._memory.fence:
            # The step stands out, so the next one is sampled.
            self._buffer.steps_left = 0
        self._highest = 0

    def step_ended(self) -> None:
        """Begin the next step."""
        self.unread -= 1
        self.unread_memory -= 1
        self.is_due = self._clippings.on = self.unread <= 0
        self.reads_memory = self.unread_memory <= 0
        self.backwards = 0

    def take(self) -> tuple[list[BufferedLoss], dict[int, BufferedNorms], dict[int, Total]]:
        """Return what was read, and begin anew."""
        taken = self.losses, self.norms, self.totals
        self.losses, self.norms, self.totals = [], {}, {}
        return taken

    def on_backward(self, outputs: Any) -> bool:
        """Read the loss. Return False if it has stopped being finite: the backward must not be buffered then."""
        value: Value | None = None
        factor = None
        first = outputs[0] if type(outputs) is tuple and outputs else outputs
        if isinstance(first, torch.Tensor) and first.numel() == 1 and not operations_are_observed():
            if first.is_complex():
                pass
            elif first.is_cpu:
                value = float(first.item())
                # NaN is not equal to itself.
                if value - value != 0 and not self._detector.is_bad:
                    self.is_due = True
                    return False
                if self.is_due:
                    self._detector.note_root(first)
            else:
                value = HostCopy(first.detach().reshape(1))
            if self.backwards:
                factor = factor_of(outputs)
        self.backwards += 1
        self.losses.append(BufferedLoss(value, factor))
        return True

    def on_step(self, optimizer: Optimizer) -> bool:
        """Read the norms of the gradients that `optimizer` is about to apply.

        Return False, and keep nothing, if some have stopped being finite: the step must not be buffered then.
        """
        began = thread_time_ns()
        if operations_are_observed():
            return True
        known, gradients = self._applied.dense_gradients(optimizer)
        norms = self._norms_of(gradients, known.groups) if known.groups is not None else None
        if norms is None:
            # On a device, sparse or distributed.
            self._measure(optimizer)
        elif not self._keep(known, norms):
            return False
        self._interval.add_cost((thread_time_ns() - began) / 1e9)
        self.unread = self._every
        return True

    def _norms_of(self, gradients: list[torch.Tensor], groups: list[NormGroup]) -> list[float] | None:
        was_enabled = torch.is_grad_enabled()
        set_grad_enabled(False)
        try:
            if len(gradients) < _MANY:
                return norms_on_cpu(gradients, groups)
            with no_collection():
                return norms_on_cpu(gradients, groups)
        except NotImplementedError:
            return None
        finally:
            set_grad_enabled(was_enabled)

    def _keep(self, known: DenseGradients, norms: list[float]) -> bool:
        total = math.hypot(*norms)
        if total - total != 0 and not self._detector.is_bad:
            self.is_due = True
            return False
        clipping = self._clippings.take()
        before, limit = (float(clipping.total), clipping.threshold) if clipping is not None else (None, None)
        self.norms[len(self._buffer)] = BufferedNorms(known.indices, known.absent, norms, total, before, limit)
        return True
