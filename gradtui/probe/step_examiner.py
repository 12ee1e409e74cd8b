"""When a step is examined, and what is told of it: the schedule around `Examination`, and the ledger at phase ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.allocators import Allocator
from gradtui.probe.batch_storages import BatchStorages
from gradtui.probe.cadence import Cadence
from gradtui.probe.examination import Examination
from gradtui.probe.frozen_values import FrozenValues
from gradtui.probe.hook_set import HookSet
from gradtui.probe.memory_ledger import MemoryLedger, Taking
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.module_trace import ModuleTracer
from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.recomputation import Recomputation
from gradtui.probe.run_clock import RunClock
from gradtui.probe.saved_tensors import NOTHING_KEPT, GraphFacts
from gradtui.probe.step_counter import StepCounter
from gradtui.probe.step_traces import StepTraces
from gradtui.probe.torch_private import operations_are_observed, sequence_number
from gradtui.protocol.events import DeviceFound, Event, LedgerTaken, ParametersClassified
from gradtui.protocol.vocabulary import ParameterState, Phase

_AFTER_A_TOGGLE = 2
"""Steps examined whatever they cost after a toggle: the first shows gradients, the second optimizer state throughout."""

_AFTER_A_CHANGE = 4
"""Steps examined whatever they cost when the models have changed: a script may train one after the other."""

_EVALUATION_NS = 1_000_000_000
"""The bytes of an evaluation are taken this often at most."""


class StepExaminer:
    """Examines sampled steps and emits what it finds."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        clock: RunClock,
        view: ModelsInView,
        phases: PhaseTracker,
        counter: StepCounter,
        allocator: Allocator,
        cadence: Cadence,
        traces: StepTraces,
        hooks: HookSet,
    ) -> None:
        self.tracer = ModuleTracer()
        self.batches = BatchStorages()
        self.recomputation = Recomputation(hooks.charge)
        self.examination: Examination | None = None
        """What is seen of the present step; None if it is not examined."""
        self._emit = emit
        self._clock = clock
        self._view = view
        self._phases = phases
        self._counter = counter
        self._ledger = MemoryLedger(allocator)
        self._cadence = cadence
        self._traces = traces
        self._phase_place = 0
        """Where on the traced step's curve the present phase began."""
        self._frozen = FrozenValues()
        self._kept: GraphFacts | None = NOTHING_KEPT
        """What autograd keeps now; None while that is not known."""
        self._forward_end: int | None = None
        """The total when the forward ended, if something came between it and backward."""
        self._unsettled: list[tuple[LedgerTaken, Taking, int]] = []
        """Taken between the two, and how far autograd had come: what it keeps can only be read when backward begins."""
        self._letters = ""
        self._trainable = ""
        self._evaluated_at = -_EVALUATION_NS
        self._guard = hooks.guard
        phases.ended = self._guarded_end

    @property
    def every(self) -> int:
        """A step is examined every so many steps."""
        return self._cadence.every

    @property
    def device_index(self) -> int:
        """Torch's number of the CUDA device that most of the models are on; 0 where there is none. Any thread."""
        return self._ledger.device_index

    def tree_changed(self) -> None:
        """Parameters and modules have other places now."""
        self._frozen.clear()
        self._letters = self._trainable = ""
        self.examination = None
        self.tracer.stop()
        self._traces.drop()
        self._cadence.force(_AFTER_A_CHANGE)
        device = self._ledger.follow(self._view.tree)
        if device is not None:
            self._emit(DeviceFound(self._clock.at(), self._counter.steps, device, self._ledger.allocator.name))

    def toggled(self, step: int) -> None:
        """A toggle was applied: tell who is trainable now, and look closely at the next steps."""
        letters = list(self._letters or "-" * len(self._view.tree.parameters))
        flags = ["-"] * len(letters)
        for index, tensor in self._view.tree.live_parameters():
            flags[index] = "1" if tensor.requires_grad else "0"
            if self._trainable[index : index + 1] != flags[index]:
                letters[index] = "-"
        self._publish("".join(letters), "".join(flags), step)
        self._cadence.force(_AFTER_A_TOGGLE * self._view.round_length)

    def unreached(self) -> frozenset[int]:
        """The parameters that the backward examined last did not reach."""
        return frozenset(i for i, letter in enumerate(self._letters) if letter == ParameterState.UNREACHED.value)

    def rests(self, step: int) -> int:
        """How many steps after the one that follows so many executed ones are not to be examined."""
        return min(self._cadence.rests(step), self._traces.rests(step, self._ledger.allocator.device_type))

    def trace_next(self) -> str | None:
        """Take the next step apart; why not, in words, if that cannot be."""
        return self._traces.ask(self._ledger.allocator.device_type)

    def begin_step(self, step: int, cost: float) -> None:
        """The step after so many executed ones begins; the one before took our hooks `cost` seconds."""
        self._settle(None)
        self.recomputation.stop()
        before = self.examination
        if before is not None:
            self._cadence.spent(cost)
            self.examination = None
        traced = self._traces.is_due(step, self._ledger.allocator.device_type)
        due = self._cadence.is_due(step, self._view.round_length, wanted=traced)
        self._traces.drop()
        due = due and not operations_are_observed()
        self.batches.begin(on=due)
        if not due:
            if self.tracer.on:
                self.tracer.stop()
            self._phases.ended = None
            return
        self._phases.ended = self._guarded_end
        self._ledger.begin_phase()
        self._view.refresh(step, look_closer=True)
        tree = self._view.tree
        # What one optimizer's step has computed may be used by the next one's: a GAN's generated images.
        same_round = before is not None and before.tree is tree and step % self._view.round_length > 0
        onto = before.trace if before is not None and same_round else None
        self.examination = Examination(tree, self.tracer.begin(tree.module_index, onto))
        if traced and self._ledger.total is not None:
            self._traces.begin(self.examination.trace, self._ledger.allocator.device_type, self._ledger.total)
            self._phase_place = 0

    def look_at_graph(self, outputs: Any, keeps_graph: bool) -> None:
        """Backward is about to run on `outputs`."""
        examination = self.examination
        if examination is None or operations_are_observed():
            return
        facts = examination.look_at_graph(outputs, self._ledger, self.recomputation)
        self._kept = facts
        self._settle(facts)
        # The forward ends here for the ledger: what autograd keeps is known only now.
        self._take(Phase.FORWARD, examination, stepped=False)
        self._kept = facts if keeps_graph else NOTHING_KEPT
        if self._traces.current is not None:
            self._traces.current.measured(self._ledger.total)

    def _guarded_end(self, phase: Phase) -> None:
        # Phases end inside every hook: what fails here must not switch those off.
        self._guard("ledger", self._phase_ended, phase)

    def _phase_ended(self, phase: Phase) -> None:
        # Before the first training step: a script may only evaluate.
        first = phase is Phase.LOAD or (phase is Phase.EVAL and self._evaluation_is_due())
        if first and self.examination is None and not operations_are_observed():
            self._emit_ledger(phase, NOTHING_KEPT)
        self._traces.phase(self._phases.phase)
        examination = self.examination
        if examination is None or operations_are_observed():
            return
        if phase is Phase.FORWARD:
            self._forward_left()
            return
        self._take(phase, examination, stepped=phase is Phase.OPTIMIZER)

    def _forward_left(self) -> None:
        """Something comes between forward and backward: what autograd keeps by now is known only when backward begins."""
        if self._phases.phase is Phase.BACKWARD:
            return
        self._kept = None
        self._ledger.begin_phase()
        self._forward_end = self._ledger.total

    def evaluation_began(self) -> None:
        """A forward that is no training begins. Its bytes are taken once a second at most, examined step or not."""
        if self._phases.ended is None and not operations_are_observed() and self._evaluation_is_due():
            self._ledger.begin_phase()
            self.batches.begin(on=True)
            self._phases.ended = self._evaluation_ended

    def _evaluation_is_due(self) -> bool:
        now = self._clock.now()
        if now - self._evaluated_at <= _EVALUATION_NS:
            return False
        self._evaluated_at = now
        return True

    def _evaluation_ended(self, phase: Phase) -> None:
        if phase is Phase.EVAL:
            self._phases.ended = None
            self._guard("ledger", self._emit_ledger, phase, NOTHING_KEPT)
            self.batches.begin(on=False)

    def _take(self, phase: Phase, examination: Examination, *, stepped: bool) -> None:
        if phase in examination.ledgered:
            self._ledger.begin_phase()
            return
        examination.ledgered.add(phase)
        self._emit_ledger(phase, self._kept, stepped=stepped)

    def _emit_ledger(self, phase: Phase, kept: GraphFacts | None, *, stepped: bool = False) -> None:
        taking, peak, peak_exact = self._ledger.take(
            self._view.tree, self._view.live_optimizers(), self.batches.alive(), stepped=stepped
        )
        if phase is Phase.FORWARD and self._forward_end is not None:
            # The gradients of the step before may have been there when it ended, and be gone when backward begins.
            peak = max(self._forward_end, peak or 0)
            self._forward_end = None
        if self._traces.current is not None:
            # What a kernel itself allocates is not seen, so this is a lower bound too, if a much closer one.
            peak = max(peak or 0, self._traces.current.highest_since(self._phase_place))
            self._phase_place = self._traces.current.place
        exact = self._ledger.allocator.exact and kept is not None
        # Before the first step no batch is known, and there may be none yet.
        held = taking.divided(kept, knows_batches=self.batches.on or phase is Phase.LOAD)
        taken = LedgerTaken(self._clock.at(), self._counter.steps, phase, held, peak, peak_exact, exact)
        if kept is None:
            self._unsettled.append((taken, taking, sequence_number()))
        else:
            self._emit(taken)

    def _settle(self, kept: GraphFacts | None) -> None:
        """Emit the ledgers that waited for what autograd keeps: exact if it has recorded nothing since."""
        unsettled, self._unsettled = self._unsettled, []
        for taken, taking, number in unsettled:
            if kept is not None:
                exact = self._ledger.allocator.exact and number == sequence_number()
                self._emit(replace(taken, held=taking.divided(kept), exact=exact))
            else:
                self._emit(taken)

    def conclude(self, optimizer: Optimizer | None, norms: Mapping[int, float], skipped: bool) -> None:
        """The optimizer of an examined step has run (or its step was skipped): tell what was seen.

        `optimizer` is None where the script updates its parameters itself.
        """
        examination = self.examination
        if examination is None or operations_are_observed():
            return
        letters, trainable = examination.classify(
            self._letters, optimizer, self._view.live_optimizers(), norms, self._frozen, skipped=skipped
        )
        self._publish(letters, trainable, self._counter.steps)
        saved = examination.saved_bytes(self._clock.at(), self._counter.steps)
        if saved is not None:
            self._emit(saved)
        traced = self._traces.conclude(self._clock.at(), self._counter.steps)
        if traced is not None:
            self._emit(traced)
        self.tracer.stop()

    def finish(self) -> None:
        """The run ends, and the phase it is in with it."""
        self._phase_ended(self._phases.phase)
        self._settle(None)
        self._traces.drop()

    def _publish(self, letters: str, trainable: str, step: int) -> None:
        if (letters, trainable) != (self._letters, self._trainable):
            self._letters, self._trainable = letters, trainable
            self._emit(ParametersClassified(self._clock.at(), step, letters, trainable))
