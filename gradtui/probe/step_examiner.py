"""When a step is examined, and what is told of it: the schedule around `Examination`, and the ledger at phase ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.allocators import Allocator
from gradtui.probe.cadence import Cadence
from gradtui.probe.examination import Examination
from gradtui.probe.frozen_values import FrozenValues
from gradtui.probe.memory_ledger import MemoryLedger
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.module_trace import ModuleTracer
from gradtui.probe.phase_peaks import Peak, PhasePeaks
from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.reach_reader import ReachReader
from gradtui.probe.run_clock import RunClock
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
        guard: Callable[..., None],
    ) -> None:
        self.tracer = ModuleTracer()
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
        self._reach = ReachReader(emit, clock, view, counter)
        self._activations: int | None = 0
        self._peaks = PhasePeaks()
        self._unsettled: list[tuple[LedgerTaken, int]] = []
        """Taken between the two, and how far autograd had come: what it keeps can only be read when backward begins."""
        self._letters = ""
        self._trainable = ""
        self._evaluated_at = -_EVALUATION_NS
        self._guard = guard
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
        self._reach.tree_changed()
        self._evaluated_at = -_EVALUATION_NS
        self._letters = self._trainable = ""
        self.examination = None
        self.tracer.stop()
        self._traces.drop()
        self._cadence.force(_AFTER_A_CHANGE)
        device = self._ledger.follow(self._view.tree)
        if device is not None:
            self._peaks = PhasePeaks()
            if self._phases.phase is not Phase.LOAD:
                # The device's first reading tells of the whole run before.
                self._ledger.begin_phase()
                self._peaks.read_within((None, False))
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
        before = self.examination
        if before is not None:
            self._cadence.spent(cost)
            self.examination = None
        traced = self._traces.is_due(step, self._ledger.allocator.device_type)
        due = self._cadence.is_due(step, self._view.round_length, wanted=traced)
        self._traces.drop()
        if not due or operations_are_observed():
            if self.tracer.on:
                self.tracer.stop()
            self._phases.ended = None
            return
        listening, self._phases.ended = self._phases.ended == self._guarded_end, self._guarded_end
        self._peaks.begin_step(self._ledger.begin_phase(), listening=listening)
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
        facts = examination.look_at_graph(outputs, self._ledger)
        self._activations = facts.total
        self._settle(facts.total)
        # The forward ends here for the ledger: what autograd keeps is known only now.
        part = self._take(Phase.FORWARD, examination, stepped=False)
        if self._phases.phase is not Phase.FORWARD:
            self._peaks.read_within(part)
        self._activations = facts.total if keeps_graph else 0
        if self._traces.current is not None:
            self._traces.current.measured(self._ledger.total)

    def _guarded_end(self, phase: Phase) -> None:
        # Phases end inside every hook: what fails here must not switch those off.
        self._guard("ledger", self._phase_ended, phase)

    def _phase_ended(self, phase: Phase) -> None:
        # Before the first training step: a script may only evaluate.
        first = phase is Phase.LOAD or (phase is Phase.EVAL and self._evaluation_is_due())
        if first and self.examination is None and not operations_are_observed():
            self._emit_ledger(phase, 0)
            self._tell_evaluation(phase)
        self._traces.phase(self._phases.phase)
        examination = self.examination
        if examination is None:
            self._peaks.skipped()
            return
        if operations_are_observed():
            self._peaks.of(phase, self._ledger.begin_phase())
            return
        if phase is Phase.FORWARD:
            self._forward_left()
            return
        self._take(phase, examination, stepped=phase is Phase.OPTIMIZER)

    def _forward_left(self) -> None:
        """Something comes between forward and backward: what autograd keeps by now is known only when backward begins."""
        if self._phases.phase is Phase.BACKWARD:
            return
        self._activations = None
        self._peaks.forward_left(self._ledger.begin_phase())

    def evaluation_began(self, root: nn.Module) -> None:
        """A forward that is no training begins. Its bytes are taken once a second at most, examined step or not."""
        self._reach.evaluation_began(root)
        if operations_are_observed():
            return
        if self._phases.ended is None and self._evaluation_is_due():
            self._ledger.begin_phase()
            self._phases.ended = self._evaluation_ended
        elif self._phases.ended == self._guarded_end and self.examination is None and self._evaluation_is_late():
            # Nothing has trained yet: what comes before it is not its own.
            self._peaks.read_within(self._ledger.begin_phase())

    def _evaluation_is_due(self) -> bool:
        if not self._evaluation_is_late():
            return False
        self._evaluated_at = self._clock.now()
        return True

    def _evaluation_is_late(self) -> bool:
        return self._clock.now() - self._evaluated_at > _EVALUATION_NS

    def _evaluation_ended(self, phase: Phase) -> None:
        if phase is Phase.EVAL:
            self._phases.ended = None
            self._guard("ledger", self._emit_ledger, phase, 0)
            self._guard("ledger", self._tell_evaluation, phase)

    def _tell_evaluation(self, phase: Phase) -> None:
        if phase is Phase.EVAL:
            self._reach.evaluation_measured(self._ledger.allocator.device_type)

    def _take(self, phase: Phase, examination: Examination, *, stepped: bool) -> Peak:
        """Tell of a phase, once in a step. The peak since the reading before."""
        if phase not in examination.ledgered:
            examination.ledgered.add(phase)
            return self._emit_ledger(phase, self._activations, stepped=stepped)
        part = self._ledger.begin_phase()
        again = self._peaks.once_more(phase, part)
        if again is not None:
            self._emit(again)
        return part

    def _emit_ledger(self, phase: Phase, activations: int | None, *, stepped: bool = False) -> Peak:
        optimizers = self._view.live_optimizers()
        held, highest, is_exact = self._ledger.take(self._view.tree, optimizers, activations, stepped=stepped)
        peak, peak_exact = self._peaks.of(phase, (highest, is_exact))
        if self._traces.current is not None:
            # What a kernel itself allocates is not seen, so this is a lower bound too, if a much closer one.
            if not peak_exact:
                peak = max(peak or 0, self._traces.current.highest_since(self._phase_place))
            self._phase_place = self._traces.current.place
        exact = self._ledger.allocator.exact and activations is not None
        taken = LedgerTaken(self._clock.at(), self._counter.steps, phase, held, peak, peak_exact, exact)
        if activations is None:
            self._unsettled.append((taken, sequence_number()))
        else:
            self._tell(taken)
        return highest, is_exact

    def _tell(self, taken: LedgerTaken) -> None:
        self._peaks.told(taken)
        self._emit(taken)

    def _settle(self, activations: int | None) -> None:
        """Emit the ledgers that waited for the activations' bytes: exact if autograd has recorded nothing since."""
        unsettled, self._unsettled = self._unsettled, []
        for taken, number in unsettled:
            if activations is not None:
                other = taken.held.other - activations if taken.held.other is not None else None
                held = replace(taken.held, activations=activations, other=other)
                exact = self._ledger.allocator.exact and number == sequence_number()
                self._tell(replace(taken, held=held, exact=exact))
            else:
                self._emit(taken)

    def conclude(self, optimizer: Optimizer | None, norms: Mapping[int, float], skipped: bool) -> None:
        """The optimizer of an examined step has run (or its step was skipped): tell what was seen.

        `optimizer` is None where the script updates its parameters itself.
        """
        examination = self.examination
        if examination is None or operations_are_observed():
            return
        if examination.tree.is_gone():
            self.tracer.stop()
            return
        letters, trainable = examination.classify(
            self._letters, optimizer, self._view.live_optimizers(), norms, self._frozen, skipped=skipped
        )
        self._publish(letters, trainable, self._counter.steps)
        self._reach.step_ended(optimizer, examination.graphs, examination.trace, self._ledger.allocator.device_type)
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
