"""Decide which steps are sampled, measure the memory breakdown at the end of each phase, and emit the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.activation_checkpointing import CheckpointedModules
from gradtui.probe.autograd import NOTHING_KEPT, ModuleCallLog, ModuleCallLogger, Recomputation
from gradtui.probe.memory import KeptTensorSearch, MemoryCounter, MemoryProfileSchedule, PhaseMemory, StepTotalsReader
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import SamplingSchedule, alone
from gradtui.probe.sampling.first_sample import Extent, FirstSample
from gradtui.probe.sampling.gradient_flow_reporter import GradientFlowReporter
from gradtui.probe.sampling.gradient_path_requests import GradientPathRequests
from gradtui.probe.sampling.loaded_checkpoint import LoadedCheckpoint
from gradtui.probe.sampling.module_timing import ModuleTiming
from gradtui.probe.sampling.parameter_states import ParameterStateReporter
from gradtui.probe.sampling.sampled_step import SampledStep, sequence
from gradtui.probe.sampling.state_classifier import StateClassifier
from gradtui.probe.sampling.step_evidence import StepEvidence
from gradtui.probe.sampling.tensor_evidence import TensorEvidence
from gradtui.probe.steps import DeviceTimes, PhaseTracker, ProbeContext
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.effects import StepMemory
from gradtui.protocol.vocabulary import Phase

_AFTER_A_TOGGLE = 2
"""Steps sampled regardless of cost after a toggle: the first shows gradients, the second all of the optimizer state."""
_AFTER_A_CHANGE = 4
"""Steps sampled regardless of cost after the models have changed: a script may train one after the other."""
_BETWEEN_SWITCHES = 2_000
"""The check for requires_grad changes by the script pauses for this many times its own duration."""
_OF_EACH_ROOT = 2
"""Steps sampled regardless of cost for each module with whose call they begin. Without this, layers that are trained one after
the other would never be sampled."""
_MEMORIES = 32
"""Sampled steps whose memory is kept: several rounds of steps."""
_EVALUATION_NS = 1_000_000_000
"""Minimum time in nanoseconds between two measurements of the memory breakdown of evaluations."""


class StepSampler:
    """Samples steps and emits the results."""

    def __init__(
        self,
        context: ProbeContext,
        phases: PhaseTracker,
        cadence: SamplingSchedule,
        traces: MemoryProfileSchedule,
        allocator: MemoryCounter,
    ) -> None:
        self.tracer = ModuleCallLogger()
        self.recomputation = Recomputation(context.hooks.charge)
        self.checkpoints = CheckpointedModules(self.tracer, context.hooks)
        self.memories: deque[StepMemory] = deque(maxlen=_MEMORIES)
        """The memory of the newest sampled steps of these models, the newest last."""
        self.sampled_step: SampledStep | None = None
        """The current step if it is sampled, else None."""
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._phases, self._counter = phases, context.counter
        self._memory = PhaseMemory(context, allocator, traces)
        self.batches = self._memory.batches
        self.totals = StepTotalsReader(context, self._memory.accountant, self._step_stands_out)
        self.extent = Extent.WHOLE
        """Which measurements the current step allows."""
        self.times = DeviceTimes(context, phases)
        self._cadence, self.step_time = cadence, cadence.step_time
        self._traces = traces
        self.gradients = GradientPathRequests(context, cadence)
        self.states = ParameterStateReporter(context)
        self._first = FirstSample(context.models, cadence.step_time, self.states.toggled)
        self._checkpoint = LoadedCheckpoint(context)
        self._kept = KeptTensorSearch(context, self._memory.graphs)
        self._gradient_flow = GradientFlowReporter(context)
        self.passing = self._gradient_flow.passing
        self.modules = ModuleTiming(context, self.tracer, self.recomputation, self.passing.keep)
        moved = TensorEvidence(context, self.tracer, self.states, self._gradient_flow)
        self.evidence = StepEvidence(context, self.recomputation, self.batches.alive, moved)
        self._classes = StateClassifier(context, self.states, self._gradient_flow, self.times, self.sample_next)
        self._is_graph_known = False
        """The phase about to end does so with a backward whose graph was walked."""
        self._evaluated_at, self._switches_at = -_EVALUATION_NS, 0
        self.begun_with: dict[int, int] = {}
        """Module index -> number of sampled steps that began with a call of the module."""
        self._is_exempt = False
        """Whether the last sample was made regardless of the budget."""
        self.hooks = context.hooks
        phases.listen(self._guarded_end)

    def _can_sample(self) -> bool:
        return not operations_are_observed() and self.hooks.is_alone() and not self.hooks.is_off("sampled step")

    @property
    def every(self) -> int:
        """The current sampling interval in steps."""
        return self._cadence.every

    @property
    def is_exempt(self) -> bool:
        """Whether the current step is sampled regardless of the budget."""
        return self.sampled_step is not None and self._is_exempt

    @property
    def searched_ns(self) -> int:
        """What searches for living graphs have taken so far, in nanoseconds. No sample is charged with that."""
        return self._memory.graphs.searched_ns

    @property
    def device_index(self) -> int:
        """The index of the CUDA device that holds most of the models; 0 where there is none. May be called on any thread."""
        return self._memory.accountant.device_index

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new module and parameter indexes after the models were listed again."""
        self._classes.tree_changed(moved)
        self.evidence.tree_changed(moved)
        self._gradient_flow.tree_changed(moved)
        self._evaluated_at = -_EVALUATION_NS
        self.states.tree_changed(moved)
        self.gradients.tree_changed()
        self.begun_with = moved.of_modules(self.begun_with)
        self.memories.clear()
        self.modules.clear()
        self.sampled_step = None
        self.tracer.stop()
        self._traces.drop()
        self._traces.outdate(self._counter.steps)
        self._cadence.force(_AFTER_A_CHANGE)
        self._memory.tree_changed(self._phases.phase)
        self.totals.tree_changed()
        self.times.follow(self._memory.accountant.devices[0])

    def _step_stands_out(self) -> None:
        """Sample the next step, since the memory of this one is far above that of the others."""
        self._cadence.force(at_boundary=True)

    def sample_next(self) -> None:
        """Sample the next steps: optimizers were added or changed, or a parameter has moved or lost its gradient."""
        self._cadence.force(_AFTER_A_TOGGLE * self._view.round_length)

    def toggled(self, step: int) -> None:
        """Emit which parameters are trainable after a toggle, and sample the next steps."""
        self.states.toggled(step)
        self.modules.changed(self._phases.times)
        self._traces.outdate(step)
        self._first.wanted()
        self._cadence.force(_AFTER_A_TOGGLE * self._view.round_length, at_boundary=True)

    def check_requires_grad(self, now: int) -> None:
        """Sample the next steps if the script has frozen or unfrozen parameters since the last emitted states."""
        if now >= self._switches_at and self._can_sample():
            began = perf_counter_ns()
            if indices := self.states.outdated():
                self.states.switched.update(indices)
                self.modules.clear()
                if self.extent is not Extent.WHOLE:
                    self.states.toggled(self._counter.steps)
                self._cadence.force(_AFTER_A_TOGGLE * self._view.round_length)
            self._switches_at = now + _BETWEEN_SWITCHES * (perf_counter_ns() - began)

    def steps_until_due(self, step: int) -> int:
        """Return how many steps after the one that follows step `step` will not be sampled."""
        traces = self._traces.steps_until_due(step, self._memory.device_type, only_requested=self._profile_is_long)
        return min(self._cadence.steps_until_due(step), traces)

    @property
    def _profile_is_long(self) -> bool:
        """Whether a memory profile takes, or is expected to take, very long compared with the training so far."""
        return self._view.is_large or (self._cadence.is_long and not self._cadence.allows_profile)

    def trace_next(self, *, operations: bool) -> str | None:
        """Profile the memory of the next step, or record its `operations`. Return why not, in words, if that is impossible."""
        return self._traces.request(self._memory.device_type, operations=operations)

    @alone
    def begin_step(self, step: int, cost: float, root: nn.Module | None, *, logs_calls: bool) -> None:
        """Begin the step after step `step`, with a call of `root` if that is known, and decide whether to sample it.

        `cost` is the time in seconds that gradtui's hooks took in the step before. With `logs_calls` its module calls and
        batches are recorded in any case.
        """
        self._memory.settle(None)
        self.times.step = step + 1
        self.recomputation.stop()
        before = self.sampled_step
        if not self._traces.settle(cost) and before is not None:
            self._cadence.record_cost(cost, self.times.newest_excess[True])
        self.sampled_step = None
        # A memory profile takes several times as long as a sample.
        traced = self._traces.is_due(step, self._memory.device_type, only_requested=self._profile_is_long)
        index = self._view.tree.index_of(root)
        is_new = index >= 0 and self.begun_with.get(index, 0) < (1 if self._cadence.is_long else _OF_EACH_ROOT)
        due = self._cadence.is_due(step, self._view.round_length, wanted=traced or is_new)
        # A profile takes much longer than a sample, so its own schedule counts.
        self._is_exempt = self._traces.is_exempt if traced else self._cadence.is_exempt
        self._traces.drop()
        self.extent = self._first.extent(step, is_requested=traced or self.gradients.is_requested)
        due = due and self.extent is Extent.WHOLE and self._can_sample()
        self.batches.begin(on=due or logs_calls, reads_random=logs_calls)
        if not due:
            if logs_calls:
                self.tracer.begin(self._view.tree.module_index)
            elif self.tracer.on:
                self.tracer.stop()
            self._phases.listen(None)
            return
        listening = self._phases.listen(self._guarded_end) == self._guarded_end
        self.totals.read_between(self._memory.begin_step(listening=listening))
        self._view.refresh(step, verify=True)
        tree = self._view.tree
        self.begun_with[tree.index_of(root)] = self.begun_with.get(tree.index_of(root), 0) + 1
        # A tensor computed in one optimizer's step may be used in the next one's, such as the generated images of a
        # GAN.
        same_round = step % self._view.round_length > 0
        onto = before.trace if before is not None and before.tree is tree and same_round else None
        trace = self.tracer.begin(tree.module_index, onto, tree.parents, tree.shared)
        self.sampled_step = SampledStep(tree, trace)
        self.evidence.moved.step_began(tree)
        self._memory.follow(trace.grad_modes)
        if traced:
            found = self._memory.accountant
            self._traces.begin(trace, self._memory.device_type, found.total, found.device_indexes)
        else:
            self.modules.begin_step(step, self._memory.device_type, self.times.device)
        self.times.follow_phases(is_exempt=self.is_exempt)

    @alone
    def on_backward(self, outputs: Any, keeps_graph: bool) -> None:
        """Walk the autograd graph of `outputs`, on which backward is about to run."""
        sampled_step = self.sampled_step
        if sampled_step is None or not self._can_sample():
            return
        self.evidence.backward_begins(sampled_step, outputs, self._counter.steps + 1)
        passing = self.passing if self._memory.device_type == "cpu" and self._traces.current is None else None
        starts = self.modules.starts()
        facts = sampled_step.on_backward(outputs, self._memory.accountant, self.recomputation, passing, starts)
        self._traces.on_backward(roots := sequence(outputs), facts or NOTHING_KEPT)
        if facts is not None:
            self._memory.on_backward_pre(facts, keeps_graph=keeps_graph, within=self._phases.phase)
            self._is_graph_known = True
            self._kept.keeps_graphs |= keeps_graph
            self.evidence.on_backward(facts, sampled_step.tree, self._counter.steps + 1, roots, keeps_graph=keeps_graph)
            with self.hooks.guarded("gradient path"):
                self.gradients.search(roots, sampled_step)
        if starts is not None:
            self.modules.backward_begins(starts, is_known=facts is not None)

    @alone
    def on_backward_post(self, now: int) -> None:
        """Record which parameters have a gradient after backward. Raises what a signal handler of the script raised in it."""
        self.modules.clock.backward_ended(now)
        self.passing.end()
        if self.evidence.recomputed.is_on:
            self.evidence.on_backward_post(self._counter.steps + 1)
        if self.sampled_step is not None and self._can_sample():
            self.sampled_step.on_backward_post()
            if self.evidence.moved.rows.chosen:
                self.evidence.moved.on_backward_post(self.sampled_step)

    @alone
    def step_begins(self) -> None:
        """Record version counters before an optimizer's step."""
        if self.sampled_step is not None and self._can_sample():
            self._classes.step_begins(self.sampled_step.tree)
            if self.evidence.moved.rows.chosen:
                self.evidence.moved.step_begins(self.sampled_step)

    def _guarded_end(self, phase: Phase) -> None:
        # Phases end inside every hook. A failure here must not switch those hooks off.
        self.times.phase_ended(phase)
        if not self.hooks.is_off("memory"):
            with self.hooks.guarded("memory"):
                self._phase_ended(phase)

    @alone
    def _phase_ended(self, phase: Phase) -> None:
        is_graph_known, self._is_graph_known = self._is_graph_known, False
        # Also measure before the first training step: a script may only evaluate.
        first = phase is Phase.LOAD or (phase is Phase.EVAL and self._evaluation_is_due())
        if first and self.sampled_step is None and self._can_sample():
            self._emit_outside_of_steps(phase)
        self._traces.phase(self._phases.phase)
        sampled_step = self.sampled_step
        if sampled_step is None:
            self._memory.peaks.skipped()
            return
        if not self._can_sample():
            self._memory.peaks.of(phase, self._memory.begin_phase())
            return
        if phase is Phase.FORWARD:
            if not is_graph_known:
                self._memory.forward_left()
            return
        self._memory.take(phase, stepped=phase is Phase.OPTIMIZER)
        if phase is Phase.OPTIMIZER:
            with self.hooks.guarded("loaded checkpoint"):
                self._checkpoint.on_step_post(self._memory.unexplained)
                self._kept.on_step_post(self._memory.unowned, sampled_step.tree, self._counter.steps)

    def forward_began(self) -> None:
        """Record that a root module is called in training, in a step whose module calls are recorded."""
        self._memory.graphs.called(self._counter.steps + 1)

    def evaluation_began(self, root: nn.Module) -> None:
        """Begin an evaluation forward. Its memory breakdown is taken once a second at most, in sampled steps and others."""
        if torch.is_grad_enabled():
            self._memory.graphs.called(self._counter.steps)
        self._gradient_flow.evaluation_began(root)
        if not self._can_sample():
            return
        if self._phases.ended is None and self._evaluation_is_due():
            self.totals.read_between(self._memory.begin_phase())
            self._memory.follow((self._view.tree.index_of(root),))
            self.batches.begin(on=True)
            self._phases.listen(self._evaluation_ended)
        elif self._phases.ended == self._guarded_end and self.sampled_step is None and self._evaluation_is_late():
            # Nothing has trained yet: memory from before this evaluation must not count as its own.
            self._memory.follow((self._view.tree.index_of(root),))
            self._memory.peaks.read_within(self._memory.begin_phase())

    def _evaluation_is_due(self) -> bool:
        if not self._evaluation_is_late():
            return False
        self._evaluated_at = self._clock.now()
        return True

    def _evaluation_is_late(self) -> bool:
        return self._clock.now() - self._evaluated_at > _EVALUATION_NS

    @alone
    def _evaluation_ended(self, phase: Phase) -> None:
        if phase is Phase.EVAL:
            self._phases.listen(None)
            if self._can_sample():
                self._emit_outside_of_steps(phase)
                self.batches.begin(on=False)

    def _emit_outside_of_steps(self, phase: Phase) -> None:
        with self.hooks.guarded("memory"):
            self._memory.emit(phase, NOTHING_KEPT)
        with self.hooks.guarded("memory"):
            if phase is Phase.EVAL and self._gradient_flow.evaluation_measured(self._memory.device_type):
                self.states.toggled(self._counter.steps)

    @alone
    def finish_step(self, optimizer: Optimizer | None, norms: Mapping[int, float], skipped: bool) -> None:
        """Emit the results of a sampled step whose optimizer step has run or was skipped."""
        sampled_step = self.sampled_step
        if sampled_step is None or not self._can_sample():
            return
        if sampled_step.tree.is_gone():
            self.modules.stop()
            self.tracer.stop()
            return
        self.modules.finish_step(optimizer)
        self._classes.classify(sampled_step, optimizer, norms, self._traces.use, skipped=skipped)
        self._view.groups.read(self._counter.steps)
        self._gradient_flow.on_step_post(optimizer, sampled_step.graphs, sampled_step.trace, self._memory.device_type)
        with self.hooks.guarded("gradient path"):
            self.gradients.on_step_post(sampled_step, self._counter.steps)
        self.evidence.on_step_post(self.tracer.calls, sampled_step, self._counter.steps)
        saved = sampled_step.saved_bytes(self._clock.at(), self._counter.steps)
        index = -1 if optimizer is None else self._view.discovery.register_optimizer(optimizer)
        self.totals.sampled(self._counter.steps, index, self._memory.peaks.emitted)
        self.memories.append(self._memory.of_step(self._counter.steps, saved.total if saved is not None else None))
        if saved is not None:
            self._emit(saved)
        for event in self._traces.finish_step(self._clock.at(), self._counter.steps):
            self._emit(event)
        self.tracer.stop()

    @alone
    def norms_measured(self, optimizer: Optimizer | None, norms: Mapping[int, float], skipped: bool) -> None:
        """Emit the states after a step that was measured but not sampled, since it does not allow a whole sample."""
        if self._can_sample() and not self._view.tree.is_gone():
            self._classes.classify(
                SampledStep(self._view.tree, ModuleCallLog()), optimizer, norms, self._traces.use, skipped=skipped
            )

    def finish(self) -> None:
        """End the run, and with it the current phase."""
        self.checkpoints.clear()
        if self.states.outdated():
            self.states.toggled(self._counter.steps)
        self._phase_ended(self._phases.phase)
        with self.hooks.guarded("loaded checkpoint"):
            self._checkpoint.finish(self._memory.unexplained)
        self.evidence.finish()
        self._memory.settle(None)
        self.modules.emit()
        self.times.on_step_post()
        self._traces.drop()
