"""Decide in which steps memory is profiled: a few as the budget allows, and those the user requests.

Training thread. On the CPU a dispatch mode profiles the memory, on CUDA the allocator's history. Where there is neither, the
operations of the forward are recorded, in the steps that would be profiled first, and after a change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gradtui.probe.autograd import GraphSummary, ModuleCallLog, OperationLog, ParameterUse
from gradtui.probe.memory.cuda_memory_profiler import CudaMemoryProfiler
from gradtui.probe.memory.memory_profiler import MemoryProfiler
from gradtui.probe.memory.step_recorder import StepRecorder
from gradtui.probe.runtime import SamplingSchedule
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.cuda_history import can_record
from gradtui.probe.torch_private.operation_mode import something_is_compiled
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.events import OperationsRecorded, StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text import refusals

_FIRST = 2
"""The first step creates the optimizer's state, so only the next one has all memory in use at once."""
_FIRST_SHARE, _RENEWAL_SHARE = 0.01, 0.05
_OPERATION_NS = 250_000
"""Estimated nanoseconds that the first profile takes for each operation in the autograd graph: 90 to 220 µs where the first
forward is recorded too (GPT-2, T5 and Mamba of 2 to 4 layers, one busy core)."""
_DISPATCH_NS = 6_000
"""Estimated nanoseconds that torch takes to dispatch one operation to Python and to report what it frees, without gradtui's
own work: 5 µs with a mode that only passes operations on, 6 to 10 with gradtui's (the steps of `benchmarks/memory.py`, two
busy cores)."""


class MemoryProfileSchedule:
    """Begins and ends a `MemoryProfiler` or a `StepRecorder`, at most one at a time.

    Without a `cadence`, only steps that the user requests are profiled.
    """

    def __init__(self, context: ProbeContext, cadence: SamplingSchedule | None) -> None:
        self._recorder: StepRecorder[Any] | None = None
        """Receives the operations of the current step, if that is profiled or recorded."""
        self._cadence = cadence
        self._view = context.models
        self._charge = context.hooks.charge
        self._requested = False
        self._unpaid = 0.0
        """Cost of the last profile in seconds, until it is recorded in the schedule."""
        self._last_cost = 0.0
        self._expected_cost = 0.0
        """Seconds that the first profile is expected to take; 0 while that is unknown."""
        self._is_outdated = False
        self._settled_at = _FIRST
        """Executed steps from which on all memory is in use: a step after a change may create optimizer state."""
        self._recorded: int | None = None
        """The listing of models of which the operations were recorded last."""

    @property
    def current(self) -> MemoryProfiler | None:
        """The profiler of the current step, if that is profiled on the CPU."""
        return self._recorder if isinstance(self._recorder, MemoryProfiler) else None

    @property
    def is_on(self) -> bool:
        """Whether the operations of the current step are received."""
        return self._recorder is not None

    @property
    def use(self) -> ParameterUse | None:
        """The use of parameters in the current step; None if its operations are not recorded, or not all of them."""
        use = self._recorder.use if self._recorder is not None else None
        return use if use is not None and use.is_whole else None

    @property
    def is_exempt(self) -> bool:
        """Whether the profile that is due is made regardless of the budget."""
        return self._requested or self._cadence is None or self._cadence.is_exempt

    def request(self, device_type: str, *, operations: bool = False) -> str | None:
        """Request a profile of the next step. Return the reason, in words, if that is impossible.

        With `operations`, the record of its operations is enough.
        """
        if not operations and not _has_profile(device_type):
            return refusals.NO_HISTORY if device_type == "cuda" else refusals.not_profiled(device_type)
        # Dynamo would compile the functions of a mode within a compiled module, even where it compiles nothing else.
        if self._view.tree.compiled or something_is_compiled():
            return refusals.PROFILE_RECOMPILES
        self._requested = True
        return None

    def outdate(self, executed: int) -> None:
        """Record that the models, or what trains, have changed after `executed` steps.

        The next profile takes place once its expected cost is at most 5 % of the training time so far, and not before each
        optimizer has run once.
        """
        self._settled_at = max(_FIRST, executed + self._view.round_length)
        self._is_outdated = self._last_cost > 0

    @property
    def _is_early(self) -> bool:
        if self._cadence is None:
            return False
        spent = self._cadence.step_time.total
        if self._last_cost:
            return self._is_outdated and self._last_cost <= _RENEWAL_SHARE * spent
        return 0.0 < self._expected_cost <= _FIRST_SHARE * spent

    def is_due(self, executed: int, device_type: str, *, only_requested: bool = False) -> bool:
        """Return whether to profile the step after `executed` steps; with `only_requested`, only on request."""
        if self._view.tree.compiled or something_is_compiled() or operations_are_observed():
            return False
        if not _has_profile(device_type):
            return self._requested or (executed >= _FIRST and self._is_early and not only_requested)
        if self._cadence is None or executed < self._settled_at or only_requested:
            return self._requested
        return self._cadence.is_due(executed, wanted=self._requested or self._is_early)

    def steps_until_due(self, executed: int, device_type: str, *, only_requested: bool = False) -> int:
        """Return how many steps in a row after the next one are not profiled."""
        if self._view.tree.compiled:
            return sys.maxsize
        if self._requested:
            return 0
        if self._cadence is None or something_is_compiled() or only_requested:
            return sys.maxsize
        if executed < self._settled_at or self._is_early:
            return 0
        return self._cadence.steps_until_due(executed) if _has_profile(device_type) else sys.maxsize

    def begin(self, modules: ModuleCallLog, device_type: str, total: int | None, devices: Sequence[int] = (0,)) -> None:
        """Begin a step that is due, on the CUDA devices with these indexes.

        Its memory is not profiled if the allocated bytes, the `total`, are unknown on the CPU.

        Its operations are recorded if they have not been recorded since the models, or what trains, changed, or on request.
        """
        tree = self._view.tree
        if tree.compiled:
            # Listed in this step.
            return
        if device_type == "cpu":
            if total is None:
                return
            self._recorder = MemoryProfiler(tree, modules, self._view.live_optimizers(), device_type, total)
        elif _has_profile(device_type):
            self._recorder = CudaMemoryProfiler(tree, modules, self._view.live_optimizers(), devices)
        else:
            self._recorder = StepRecorder(tree, modules, OperationLog())
        if self._requested or self._is_outdated or self._recorded != tree.listing:
            self._recorder.record_operations()
        self._requested = self._is_outdated = False

    def on_backward(self, outputs: Iterable[Any], facts: GraphSummary) -> None:
        """Handle the beginning of a backward on `outputs` in a sampled step; `facts` are empty if they are unknown."""
        self._expected_cost = facts.operations * _OPERATION_NS / 1e9
        if self._recorder is not None:
            self._recorder.backward_begins(output for output in outputs if isinstance(output, torch.Tensor))
            self._recorder.saved(facts)

    def enter(self) -> None:
        """Handle the beginning of the script's call of forward, backward or an optimizer's step."""
        if self._recorder is not None:
            self._recorder.enter()

    def leave(self) -> None:
        """Handle the end of that call."""
        if self._recorder is not None:
            self._recorder.leave()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Pause profiling within this context: an optimizer may step, and be measured, within a profiled backward."""
        recorder = self._recorder
        is_paused = recorder is not None and recorder.log.is_on and recorder.log.leave()
        try:
            yield
        finally:
            if is_paused and recorder is not None and self._recorder is recorder:
                recorder.log.enter()

    def phase(self, phase: Phase) -> None:
        """Record that a phase begins."""
        if self._recorder is not None:
            self._recorder.phase(phase)

    def finish_step(self, at: float, step: int) -> Iterator[StepMemoryProfiled | OperationsRecorded]:
        """End the step, and return its profile and its operations, if it was profiled."""
        if self._recorder is None:
            return
        try:
            profile = self._recorder.finish(at, step)
            if profile is not None:
                yield profile
            recorded = self._recorder.recorded(at, step)
            if recorded is not None:
                self._recorded = self._view.tree.listing
                yield recorded
        finally:
            self.drop()

    def drop(self) -> None:
        """Stop profiling: the module tree has changed, or the run is over."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()
            cost = recorder.log.own_ns + recorder.log.operations * _DISPATCH_NS
            self._charge(cost)
            self._last_cost = cost / 1e9
            self._unpaid += self._last_cost

    def settle(self, cost: float) -> bool:
        """Record the cost of a profile. Return whether the step before was profiled, and thus accounts for its cost.

        `cost` is that of everything that was done in the step before, in seconds.
        """
        unpaid, self._unpaid = self._unpaid, 0.0
        if not unpaid or self._cadence is None:
            return False
        self._cadence.record_cost(unpaid, max(0.0, cost - unpaid))
        return True


def _has_profile(device_type: str) -> bool:
    """Return whether the memory of a step can be profiled on this device."""
    return device_type == "cpu" or (device_type == "cuda" and can_record())
