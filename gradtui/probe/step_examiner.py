"""When a step is examined, and what is told of it: the schedule around `Examination`, and the ledger at phase ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.allocators import Allocator
from gradtui.probe.cadence import Cadence
from gradtui.probe.examination import Examination, FrozenVersions
from gradtui.probe.memory_ledger import MemoryLedger
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.phase_tracker import PhaseTracker
from gradtui.probe.run_clock import RunClock
from gradtui.protocol.events import DeviceFound, Event, LedgerTaken, ParametersClassified
from gradtui.protocol.vocabulary import Phase

_AFTER_A_TOGGLE = 2
"""Steps examined whatever they cost after a toggle: the first shows gradients, the second optimizer state throughout."""


_EVALUATION_NS = 1_000_000_000


class StepExaminer:
    """Examines sampled steps and emits what it finds."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        clock: RunClock,
        view: ModelsInView,
        phases: PhaseTracker,
        allocator: Allocator,
        budget: float,
    ) -> None:
        self.tracing = False
        self._emit = emit
        self._clock = clock
        self._view = view
        self._phases = phases
        self._ledger = MemoryLedger(allocator)
        self._cadence = Cadence(budget)
        self._frozen = FrozenVersions()
        self._examination: Examination | None = None
        self._activations: int | None = 0
        self._letters = ""
        self._trainable = ""
        self._spent_ns = 0
        self._step = 0
        self._evaluated_at = -_EVALUATION_NS
        phases.ended = self._phase_ended

    @property
    def every(self) -> int:
        """A step is examined every so many steps."""
        return self._cadence.every

    def tree_changed(self) -> None:
        """Parameters and modules have other places now."""
        self._frozen.clear()
        self._letters = self._trainable = ""
        self._examination = None
        self.tracing = False
        self._cadence.force()
        device = self._ledger.follow(self._view.tree)
        if device is not None:
            self._emit(DeviceFound(self._clock.at(), self._step, device, self._ledger.allocator.name))

    def toggled(self, step: int) -> None:
        """A toggle was applied: tell who is trainable now, and look closely at the next steps."""
        letters = list(self._letters or "-" * len(self._view.tree.parameters))
        flags = ["-"] * len(letters)
        for index, tensor in self._view.tree.live_parameters():
            flags[index] = "1" if tensor.requires_grad else "0"
            if self._trainable[index : index + 1] != flags[index]:
                letters[index] = "-"
        self._publish("".join(letters), "".join(flags), step)
        self._cadence.force(_AFTER_A_TOGGLE)

    def begin_step(self, step: int) -> None:
        """A new step begins with the forward that follows."""
        if self._examination is not None:
            self._cadence.spent(self._spent_ns / 1e9)
            self._spent_ns = 0
            self._examination = None
        if not self._cadence.is_due(step, self._view.round_length):
            self.tracing = False
            self._phases.ended = None
            return
        self._phases.ended = self._phase_ended
        began = self._clock.now()
        self._view.refresh(step, look_closer=True)
        self._examination = Examination(self._view.tree)
        self.tracing = True
        self._spent_ns += self._clock.now() - began

    def module_entered(self, module: nn.Module) -> None:
        """A module's forward begins."""
        if self.tracing and self._examination is not None:
            place = self._view.tree.module_index.get(id(module), -1)
            self._examination.trace.entered(place)

    def module_left(self) -> None:
        """It ended."""
        if self.tracing and self._examination is not None:
            self._examination.trace.left()

    def look_at_graph(self, outputs: Any, *, keeps_graph: bool) -> None:
        """Backward is about to run on `outputs`."""
        examination = self._examination
        if examination is None:
            return
        began = self._clock.now()
        facts = examination.look_at_graph(outputs, self._ledger)
        self._activations = facts.total
        # The forward ends here for the ledger: what autograd keeps is known only now.
        self._take(Phase.FORWARD, examination, stepped=False)
        self._activations = facts.total if keeps_graph else 0
        self._spent_ns += self._clock.now() - began

    def _phase_ended(self, phase: Phase) -> None:
        if phase is Phase.LOAD and self._examination is None:
            self._emit_ledger(Phase.LOAD, self._step, 0, stepped=False)
        examination = self._examination
        if examination is None or phase is Phase.FORWARD:
            return
        began = self._clock.now()
        self._take(phase, examination, stepped=phase is Phase.OPTIMIZER)
        self._spent_ns += self._clock.now() - began

    def evaluation_began(self) -> None:
        """A forward that is no training begins. Its bytes are taken once a second at most, examined step or not."""
        now = self._clock.now()
        if self._phases.ended is None and now - self._evaluated_at > _EVALUATION_NS:
            self._evaluated_at = now
            self._phases.ended = self._evaluation_ended

    def _evaluation_ended(self, phase: Phase) -> None:
        if phase is Phase.EVAL:
            self._phases.ended = None
            self._emit_ledger(phase, self._step, 0, stepped=False)

    def _take(self, phase: Phase, examination: Examination, *, stepped: bool) -> None:
        if phase in examination.ledgered:
            self._ledger.begin_phase()
            return
        examination.ledgered.add(phase)
        self._emit_ledger(phase, self._step, self._activations, stepped=stepped)

    def _emit_ledger(self, phase: Phase, step: int, activations: int | None, *, stepped: bool) -> None:
        held, peak, peak_exact = self._ledger.take(
            self._view.tree, self._view.live_optimizers(), activations, stepped=stepped
        )
        exact = self._ledger.allocator.exact
        self._emit(LedgerTaken(self._clock.at(), step, phase, held, peak, peak_exact, exact))

    def stepped(
        self, step: int, seconds: float, optimizer: Optimizer, norms: Mapping[int, float], *, skipped: bool
    ) -> None:
        """An optimizer has run (or its step was skipped)."""
        self._cadence.stepped(seconds)
        self._step = step
        examination = self._examination
        if examination is None:
            return
        began = self._clock.now()
        letters, trainable = examination.classify(
            self._letters, optimizer, self._view.live_optimizers(), norms, self._frozen, skipped=skipped
        )
        self._publish(letters, trainable, step)
        saved = examination.saved_bytes(self._clock.at(), step)
        if saved is not None:
            self._emit(saved)
        self.tracing = False
        self._spent_ns += self._clock.now() - began

    def _publish(self, letters: str, trainable: str, step: int) -> None:
        if (letters, trainable) != (self._letters, self._trainable):
            self._letters, self._trainable = letters, trainable
            self._emit(ParametersClassified(self._clock.at(), step, letters, trainable))
