"""Create the parts of a probe, and pass on what concerns several of them: pauses, new models, progress, failures."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.autograd import ModuleCallLog
from gradtui.probe.commands import AwaitedTimes, CommandDispatcher
from gradtui.probe.gradients import BufferedReadings, ClipEffects, GradNormCollector, NonFiniteDetector, SpikeDetector
from gradtui.probe.memory import MemoryCounter, MemoryProfileSchedule, OomReporter
from gradtui.probe.metrics import LoggedMetrics
from gradtui.probe.model import IndexMapping, ModelRegistry
from gradtui.probe.runtime import (
    CheckSchedule,
    Hold,
    HookSet,
    OverheadMeter,
    ProbeOptions,
    ReadingInterval,
    RunClock,
    SamplingSchedule,
)
from gradtui.probe.sampling import BatchSizes, Extent, OperationCount, ProcessGroupWatch, ReplicaChecks, StepSampler
from gradtui.probe.script_calls import RunLength, ScriptCallParts
from gradtui.probe.steps import CallOrder, EvalDetector, HookEventBuffer, PhaseTracker, ProbeContext, StepCounter
from gradtui.protocol.commands import PauseAtBadStep
from gradtui.protocol.events import Event, Measurement, PauseChanged, ProbeFailed, Progress
from gradtui.protocol.step_times import StepPart
from gradtui.protocol.vocabulary import Phase
from gradtui.transport.recent_events import RecentEvents

_SAMPLE_SHARE, _PROFILE_SHARE = 0.4, 0.1
"""Shares of the overhead budget for sampled steps and memory profiles. The rest pays for what several ranks compare, and for
costs above the median that the sampling schedules use."""

_MIN_SPREAD_BUDGET = 0.001
"""A smaller budget asks for as few samples as possible, so none is made regardless of the cost after the first steps."""
_EVERY_STEP = 1.0
"""A budget from which on all steps may be sampled."""

_TIMES_NS = 1_000_000_000
"""Nanoseconds between two events with the times of the steps."""
_ORDER_EACH = 4
"""Events of progress for each event of the order of calls, which has the counts of the whole run."""


class ProbeParts:
    """The parts of one probe. `replay` receives the buffered hook events of steps that are not sampled."""

    _is_complete = False
    """Whether all parts exist."""
    _modules = 0
    """The number of imported modules when gradtui looked last for libraries that log."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        allocator: MemoryCounter,
        options: ProbeOptions,
        replay: Callable[[list[int]], None],
    ) -> None:
        self._recent, self._flushes, self._times_at = RecentEvents(emit), 0, 0
        self.clock = RunClock()
        self.counter = StepCounter(options.stop_after, lambda index: self.view.discovery.optimizers.is_alive(index))
        self.buffer = HookEventBuffer(options.commands.waiting, replay)
        self.hooks = HookSet(
            self._failed, first=self.buffer.leave, raised=lambda *raised: self.oom_reporter.raised(*raised)
        )
        self.view = ModelRegistry(self.emit, self.clock, self._tree_changed, lambda: self.step_sampler.sample_next())
        self.cost = OverheadMeter(self.hooks, self.clock.now(), self._listing_ns)
        time, budget = self.cost.step_time, options.budget
        intervals = ReadingInterval(time), ReadingInterval(time)
        context = ProbeContext(self.emit, self.clock, self.view, self.counter, self.hooks, *intervals)
        self.context = context
        self.phases = PhaseTracker(options.since or self.clock.now(), self.hooks.own_until)
        seldom = SamplingSchedule(budget * _PROFILE_SHARE, time, warmup=0, longest=0.5) if budget > 0 else None
        rarely = SamplingSchedule(budget * _SAMPLE_SHARE, time, is_spread=budget >= _MIN_SPREAD_BUDGET)
        # A sampled or profiled step takes longer. Were all of them, nothing would say how long the script's own are.
        for each in (rarely, seldom) if seldom is not None else (rarely,):
            each.least = 1 if budget >= _EVERY_STEP else 2
        self.profiles = MemoryProfileSchedule(context, seldom)
        self.step_sampler = StepSampler(context, self.phases, rarely, self.profiles, allocator)
        self.operations = OperationCount(context, self.phases)
        self.evaluation, self.order = EvalDetector(), CallOrder(context)
        sampler = self.step_sampler
        bad_steps = NonFiniteDetector(context, sampler.tracer, sampler.batches, self._hold)
        spikes = SpikeDetector(context)
        buffered = BufferedReadings(context, self.buffer, sampler.totals, bad_steps, spikes)
        effects = ClipEffects(context, self.order, self.profiles.aside)
        self.norms = GradNormCollector(context, buffered, bad_steps, sampler.times, effects)
        self.norms.latest.on_loss = sampler.sample_next
        sampler.passing.loss_scale = self.norms.losses.scale.factor
        self.batch_sizes = BatchSizes(context, self.norms.epochs)
        self.script_calls = ScriptCallParts(context, self.buffer, self.norms.epochs)
        self.length = RunLength(context, self.norms.epochs)
        self.metrics = LoggedMetrics(context, self.buffer, self.phases, self.norms.epochs)
        self.look_for_libraries: Callable[[], None] = lambda: None
        """Looks whether the script has imported a library that logs."""
        self.checks = ReplicaChecks(context, CheckSchedule(budget, time), sampler.times)
        self.process_group = ProcessGroupWatch(context, self._ranks_changed)
        self.dispatcher = CommandDispatcher(context, options, self.norms, self.step_sampler, self._paused)
        self.dispatcher.knows(self.script_calls.schedulers.with_older, lambda: self.length.left, self.metrics)
        self.dispatcher.awaited_times = (
            AwaitedTimes(self.counter, self.phases.times, rarely, sampler) if options.awaits_times else None
        )
        self.oom_reporter = OomReporter(context, self._present, allocator, self._recent, options.write_file)
        self._is_complete = True

    def emit(self, event: Event) -> None:
        """Emit an event, after what was measured of the steps before it."""
        if self._is_complete and not isinstance(event, (Measurement, Progress)):
            self.emit_figures()
        self._recent.emit(event)
        if self._is_complete and self.dispatcher.tries.is_on:
            self.dispatcher.tries.saw(event)

    def _hold(self, command: PauseAtBadStep, reason: str) -> bool:
        """Hold the run where a bad step was found. The dispatcher is made after what finds it."""
        return self.dispatcher.optimizer_steps.request_hold(command, reason)

    def emit_figures(self, *, at_end: bool = False) -> None:
        """Emit what was measured of each step since the last call."""
        self.norms.latest.flush()
        self.step_sampler.totals.flush(at_end=at_end)

    def phase(self) -> Phase:
        """Return the present phase, also while hook events are only buffered. Any thread may call it."""
        return self.buffer.phase() or self.phases.phase

    def _present(self) -> tuple[Phase, ModuleCallLog | None]:
        sampled_step = self.step_sampler.sampled_step
        return self.phase(), sampled_step.trace if sampled_step is not None else None

    def steps_until_due(self) -> int:
        """Return how many steps after the present one no part needs to sample; negative if a part samples the present one."""
        executed, last = self.counter.steps, self.norms.epochs.steps_left
        if (
            self.step_sampler.sampled_step is not None
            or self.norms.needs_every_step
            or self.script_calls.resuming.is_waiting
        ):
            return -1
        # The first samples of a large model wait, and the last step of an epoch is to show its states.
        waits = self.step_sampler.extent is not Extent.WHOLE
        return min(
            last - 1 if waits and last is not None else sys.maxsize,
            self.counter.steps_until_due(),
            self.step_sampler.steps_until_due(executed),
            self.dispatcher.steps_until_due(executed),
            self.checks.next_step - executed - 2,
            self.norms.spikes.steps_until_due(),
        )

    def flush(self, now: int, *, at_end: bool = False) -> None:
        """Emit the counts and times since the last flush."""
        if self.dispatcher.receipts.open:
            with self.hooks.guarded("receipts"):
                self.dispatcher.receipts.poll(self.counter.steps, is_over=at_end)
        self.process_group.look()
        if self.checks.ranks > 1 or self.checks.under_way:
            with self.hooks.guarded("replicas"):
                self.checks.finish() if at_end else self.checks.renew()
        since = now, self.clock.at(), self.phases.take(now), *self.cost.to_report(), self.step_sampler.times.take_own()
        self._flushes += 1
        if self.script_calls.is_due:
            self.script_calls.report()
        if self.norms.effects.calls:
            with self.hooks.guarded("clipping"):
                self.norms.effects.report()
        if len(sys.modules) != self._modules:
            self._find_libraries()
        if self.metrics.waiting:
            with self.hooks.guarded("metrics"):
                self.metrics.flush(at_end=at_end)
        self.emit_figures(at_end=at_end)
        if self.phases.times.steps and (at_end or now - self._times_at >= _TIMES_NS):
            self._times_at = now
            loader, threads = self.norms.epochs.loader, torch.get_num_threads()
            anomaly, length = self.step_sampler.evidence.anomaly_detection, self.view.round_length
            now_at = self.clock.at(), self.counter.steps
            self.emit(
                self.phases.times.measured(*now_at, loader, threads, anomaly_detection=anomaly, round_length=length)
            )
            with self.hooks.guarded("batch sizes"):
                if (measured := self.batch_sizes.measured(self.clock.at())) is not None:
                    self.emit(measured)
        dropped = self.norms.dropped, self.norms.epochs.progress, self.norms.without_room
        self.emit(self.counter.flush(*since, self.norms.every, self.step_sampler.every, *dropped))
        if self.counter.micro_steps and (at_end or self._flushes % _ORDER_EACH == 1):
            self.emit(self.order.measured(self.clock.at(), self.counter.steps, self.evaluation.unused_graphs))

    def steps_ended(self, now: int) -> None:
        """Measure what several ranks must have in common, if that is due, and flush if the last flush was some time ago."""
        if self.counter.steps >= self.checks.next_step:
            with self.hooks.guarded("replicas"):
                self.checks.on_step_post(self.counter.steps)
        if self.checks.under_way:
            with self.hooks.guarded("replicas"):
                self.checks.poll()
        if self.counter.is_due(now):
            with self.hooks.guarded("states"):
                self.step_sampler.check_requires_grad(now)
            # What was done at the end of the step belongs to it: the first step has much of what is done once.
            self.flush(self.clock.now())
            if self.length.is_due(now):
                with self.hooks.guarded("run length"):
                    schedulers = self.script_calls.schedulers.living()
                    if (found := self.length.found(now, self.clock.at(), schedulers)) is not None:
                        self.emit(found)

    def _listing_ns(self) -> int:
        return self.view.spent_ns + (self.step_sampler.searched_ns if self._is_complete else 0)

    def iterator_ended(self, iterator: Any) -> None:
        """Handle that a DataLoader's iterator has no more batches, on any thread."""
        if self.hooks.thread in (None, get_ident()):
            steps = self.counter.steps + self.buffer.steps
            if self.buffer.idle:
                self.norms.epochs.used.request_ended(len(self.buffer) - 1)
            self.norms.epochs.iterator_ended(iterator, steps, after_evaluation=self.metrics.evaluated_at == steps)

    def refresh_models(self) -> None:
        """List the models again after a discovery."""
        if not self.hooks.is_off("models"):
            with self.hooks.guarded("models"):
                self.view.refresh(self.counter.steps)
        self._find_libraries()

    def _find_libraries(self) -> None:
        self._modules = len(sys.modules)
        with self.hooks.guarded("metrics"):
            self.look_for_libraries()

    def on_registration(self, now: int, holder: nn.Module) -> None:  # noqa: ARG002
        """Handle the registration of a module or parameter with `holder`. One of the two is listed."""
        self.view.registered(holder)

    def on_next_batch(self, now: int) -> None:
        """Handle the request of a batch from a DataLoader."""
        self.order.on_batch()
        self.phases.data_began(now)

    def on_next_batch_post(self, now: int) -> None:
        """Handle the arrival of that batch, or the end of all batches."""
        self.phases.data_ended(now)

    def on_batch(self, now: int, batch: Any, iterator: Any) -> None:  # noqa: ARG002
        """Handle a batch that a DataLoader's iterator has returned."""
        after_evaluation = self.metrics.evaluated_at == self.counter.steps
        is_together = self.norms.epochs.fetched(iterator, after_evaluation=after_evaluation)
        self.step_sampler.batches.fetched(batch, iterator, is_together=is_together)
        if self.script_calls.resuming.is_waiting:
            with self.hooks.guarded("resumed run"):
                self.script_calls.resuming.batch_came(batch)

    def evaluation_began(self, now: int, module: nn.Module) -> None:
        """Handle a call of a root module that belongs to an evaluation."""
        self.metrics.evaluated_at = self.counter.steps
        with self.hooks.guarded("evaluations"):
            self.order.modes.on_evaluation(module, self.counter.micro_steps, self.counter.steps)
        with self.hooks.guarded("tries"):
            epochs = self.norms.epochs
            self.dispatcher.tries.aside.data.evaluated_with(epochs.indices.newest(), epochs.trained)
        with self.hooks.guarded("memory"):
            self.step_sampler.evaluation_began(module)
        self.phases.interrupt(Phase.EVAL, now)
        if not module.training and self.view.tree.index_of(module) in self.step_sampler.begun_with:
            self.phases.times.validates = True

    def skipped_late(self, optimizer: Optimizer, ended: int) -> None:
        """Handle that a scaler has skipped step number `ended`, as is known only now."""
        with self.hooks.guarded("sampled step"):
            self.step_sampler.states.was_skipped(optimizer, ended)

    def on_save_pre(self, now: int, saved: Any, file: Any, is_sorted: bool = False) -> None:
        """Handle the start of `torch.save`, or of a function whose file does not keep the order of names (`is_sorted`)."""
        self.phases.times.interrupt(StepPart.SAVING, now)
        self.script_calls.saving(saved, file, is_sorted=is_sorted)

    def on_save_post(self, now: int) -> None:
        """Handle the end of it, successful or not."""
        self.phases.times.resume(now)

    def on_optimizer_init(self, now: int, optimizer: Optimizer) -> None:  # noqa: ARG002
        """Register an optimizer that has been constructed."""
        self.view.discovery.register_optimizer(optimizer)
        self.script_calls.optimizer_made(optimizer)
        self._find_libraries()

    def on_load_state_pre(self, now: int, optimizer: Optimizer, state: Any) -> None:  # noqa: ARG002
        """Prepare for the script to load a saved state into an optimizer."""
        self.view.discovery.register_optimizer(optimizer)
        if self.dispatcher.loading.began(self.counter.steps, optimizer, state, self.dispatcher.schedule):
            self.dispatcher.report(self.counter.steps)
        self.script_calls.optimizer_loading(optimizer, state)

    def on_load_state_refused(self, now: int, optimizer: Optimizer, state: Any) -> None:  # noqa: ARG002
        """Handle a `ValueError` of that load."""
        self.script_calls.resuming.optimizer_refused(optimizer, state)

    def on_load_state_post(self, now: int) -> None:  # noqa: ARG002
        """Handle the end of that load, successful or not."""
        self.dispatcher.loading.ended()

    def waits_for_user(self, on: bool) -> None:
        """The script waits for what the user types, until the call with False. Call it on the thread that waits."""
        self.hooks.run("input", self._note_wait, on)

    def _note_wait(self, now: int, on: bool) -> None:
        """Handle that the script begins or ends to wait for what the user types. That time belongs to no phase."""
        if on:
            self.cost.pause_began(now)
            self.phases.pause_began(now)
            self.step_sampler.times.phase_ended(self.phases.phase)
        else:
            self.cost.pause_ended(now, within_hook=False)
            self.phases.pause_ended(now)
            self.step_sampler.times.wait_ended()

    def _paused(self, hold: Hold | None) -> None:
        now = self.clock.now()
        if hold is not None:
            self.phases.pause_began(now)
            self.flush(now)
            # What the report took is in it: it is no part of the time that the end of the pause subtracts.
            self.cost.pause_began(self.clock.now())
        else:
            self.cost.pause_ended(now)
            self.phases.pause_ended(now)
        why = (hold.reason, hold.breakpoints, hold.held_step) if hold is not None else ()
        self.emit(PauseChanged(self.clock.at(), self.counter.steps, hold is not None, *why))

    def _tree_changed(self, moved: IndexMapping) -> None:
        for part in (self.step_sampler, self.norms, self.dispatcher):
            part.tree_changed(moved)
        self.operations.drop()

    def _ranks_changed(self, ranks: int) -> None:
        self.norms.follow_ranks(ranks)
        self.checks.follow(ranks)

    def _failed(self, part: str, error: str, disabled: bool) -> None:
        # Directly: what `emit` would emit first may be the part that failed.
        self._recent.emit(ProbeFailed(self.clock.at(), self.counter.steps, part, error, disabled))
