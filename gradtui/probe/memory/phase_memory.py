"""Compute the memory breakdown at phase ends, add what autograd keeps, and emit it. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace

from gradtui.probe.autograd import NOTHING_KEPT, GraphSummary
from gradtui.probe.memory.batch_storages import BatchStorages
from gradtui.probe.memory.living_graphs import LiveGraphs, Living
from gradtui.probe.memory.memory_breakdown import MemoryAccountant, PartialBreakdown, Peak
from gradtui.probe.memory.memory_profile_schedule import MemoryProfileSchedule
from gradtui.probe.memory.step_totals import PHASES_OF_A_STEP
from gradtui.probe.samplers.cpu_memory import MemoryCounter
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import sequence_number
from gradtui.protocol.device_memory import joined
from gradtui.protocol.effects import StepMemory
from gradtui.protocol.events import DeviceFound, GraphsAlive, MemoryMeasured
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.system.own_memory import OWN


class PhaseMemory:
    """Emits the memory breakdown at the end of each phase of a sampled step, once per phase and step."""

    def __init__(self, context: ProbeContext, allocator: MemoryCounter, traces: MemoryProfileSchedule) -> None:
        self.accountant = MemoryAccountant(allocator)
        self.batches = BatchStorages(context.counter)
        self.graphs = LiveGraphs()
        self._living = Living()
        """The living graphs that were emitted last."""
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self._traces = traces
        self._kept: GraphSummary | None = NOTHING_KEPT
        """What autograd keeps now; None while that is unknown."""
        self.peaks = PhasePeaks()
        self.unexplained: int | None = None
        """Bytes in no category when the newest phase ended; None if unknown."""
        self.unowned: int | None = None
        """The same with the bytes of buffers, which a script may let grow."""
        self._step = 0
        """The newest sampled step."""
        self._ran: Iterable[int] = ()
        """Indices of the modules that have run in it, or were evaluated since."""
        self._emitted: set[Phase] = set()
        """The phases of the current step that were emitted."""
        self._was_gradient = False
        """The emitted backward was a `torch.autograd.grad`, whose graph was not walked."""
        self._unsettled: list[tuple[MemoryMeasured, PartialBreakdown, int]] = []
        """Breakdowns from between forward and backward, with autograd's sequence number then. What autograd keeps is known
        only when backward begins."""

    @property
    def device_type(self) -> str:
        """Device type of the tensors that are counted."""
        return self.accountant.allocator.device_type

    def tree_changed(self, phase: Phase) -> None:
        """Handle a change of the models, which may be on another device now; `phase` is the one that is running."""
        self._ran = ()
        device = self.accountant.follow(self._view.tree)
        if device is None:
            return
        self.peaks = PhasePeaks()
        if phase is not Phase.LOAD:
            # The device's first reading covers the whole run so far.
            self.begin_phase()
            self.peaks.read_within(Peak(None, False))
        self._emit(DeviceFound(self._clock.at(), self._counter.steps, device, self.accountant.allocator.name))

    def begin_step(self, *, listening: bool) -> Peak:
        """Begin a sampled step within a phase. The beginning of that phase was observed only if hooks were `listening` then.

        Returns the peak since the previous reading.
        """
        self._step = self._counter.steps + 1
        self._emitted.clear()
        self._was_gradient = False
        before = self.begin_phase()
        self.peaks.begin_step(before, listening=listening)
        return before

    def follow(self, modules: Iterable[int]) -> None:
        """Set the collection to which the indices of modules are added as they run."""
        self._ran = modules

    def begin_phase(self) -> Peak:
        """Begin a phase. Return the peak since the previous reading."""
        return self.accountant.begin_phase()

    def on_backward_pre(self, facts: GraphSummary, *, keeps_graph: bool, within: Phase) -> None:
        """Handle the beginning of backward, where the forward ends for the breakdown. `within` is the phase that continues.

        Only now is it known what autograd keeps.
        """
        self._kept = facts
        self.settle(facts)
        if self._was_gradient:
            self._emitted.discard(Phase.BACKWARD)
        part = self.take(Phase.FORWARD, stepped=False)
        if within is not Phase.FORWARD:
            self.peaks.read_within(part)
        self._kept = facts if keeps_graph else GraphSummary(is_whole=facts.is_whole)
        if self._traces.current is not None and self.accountant.total is not None:
            self._traces.current.log.measured(self.accountant.total)

    def forward_left(self) -> None:
        """Handle a forward that backward does not follow directly: what autograd keeps is known only when backward begins."""
        self._kept = None
        self.peaks.forward_left(self.begin_phase())

    def take(self, phase: Phase, *, stepped: bool) -> Peak:
        """Emit the breakdown of a phase, once per step. Return the peak since the previous reading."""
        if phase not in self._emitted:
            self._emitted.add(phase)
            if phase is Phase.BACKWARD:
                self._was_gradient = self._kept is None
            return self.emit(phase, self._kept, stepped=stepped)
        part = self.begin_phase()
        again = self.peaks.once_more(phase, part)
        if again is not None:
            self._emit(again)
        return part

    def of_step(self, step: int, activations: int | None) -> StepMemory:
        """Return the memory of the sampled step that has just ended, in which autograd kept `activations` bytes."""
        peak, held = self.peaks.of_step()
        if held is None:
            return StepMemory(step, peak, None, activations)
        apart = None if held.other is None else held.other + (held.input or 0)
        return StepMemory(step, peak, held.total, activations, held.gradients, apart, self.batches.bytes)

    def emit(self, phase: Phase, kept: GraphSummary | None, *, stepped: bool = False) -> Peak:
        """Compute and emit a phase's breakdown, where autograd keeps `kept`. Return the peak since the previous reading."""
        if phase is Phase.LOAD:
            # The figures of the run count from here, and the screen has just begun to draw.
            OWN.refresh()
        optimizers = self._view.live_optimizers()
        partial, part = self.accountant.take(
            self._view.tree, optimizers, self.batches.alive(), stepped=stepped, waiting=self._view.joined.states()
        )
        peak, peak_exact, devices = self.peaks.of(phase, part)
        if self._traces.current is not None:
            # What a kernel itself allocates is not observed, so this is also a lower bound, but a much closer one.
            within = self._traces.current.highest_in(phase)
            if not peak_exact and within is not None:
                peak = max(peak or 0, within)
        whole = kept
        if kept is not None:
            kept = kept.alive([*partial.claimed, *partial.batches])
        # If only part of a graph is alive, the script may hold that part.
        known = kept is not None and kept.is_whole and (kept is whole or not kept.storages)
        # Before the first step no batch is known, and there may be none yet.
        held, explained = self._held(phase, partial, kept, knows_batches=self.batches.on or phase is Phase.LOAD)
        self.unexplained = held.other
        self.unowned = held.other + held.buffers if held.other is not None else None
        exact = self.accountant.allocator.exact and known and explained
        step = 0 if phase is Phase.LOAD else max(self._step, self._counter.steps)
        models = self._models() if phase is not Phase.LOAD else ()
        measured = MemoryMeasured(self._clock.at(), step, phase, held, peak, peak_exact, exact, models, devices)
        if kept is None:
            self._unsettled.append((measured, partial, sequence_number()))
        else:
            self._record_and_emit(measured)
            self._emit_living(measured, partial)
        return part

    def _held(
        self, phase: Phase, partial: PartialBreakdown, kept: GraphSummary | None, *, knows_batches: bool
    ) -> tuple[MemoryBytes, bool]:
        """Return the breakdown with graphs that backward does not reach, and whether all of those are known to be alive."""
        others = self.graphs.storages()
        held = partial.divided(kept and kept.joined(others), knows_batches=knows_batches)
        if phase is Phase.LOAD:
            self.graphs.explained(phase, held)
        if kept is None or not self.graphs.is_wanted(phase, held):
            return held, not others
        is_explained = False
        # The output of an evaluation is young. Search all objects only if young ones do not explain the bytes.
        for young in (True, False) if phase is Phase.EVAL else (False,):
            if not young and not self.graphs.may_search():
                break
            apart = {**self.accountant.excluded_storages(self._view.tree), **kept.storages}
            self.graphs.search(self._view.tree, self._counter.steps, apart, self.accountant.devices, young=young)
            held = partial.divided(kept.joined(self.graphs.storages()), knows_batches=knows_batches)
            is_explained = not self.graphs.is_wanted(phase, held)
            if is_explained:
                break
        else:
            self.graphs.explained(phase, held)
            is_explained = True
        return held, is_explained

    def _emit_living(self, measured: MemoryMeasured, partial: PartialBreakdown) -> None:
        if measured.phase not in (Phase.OPTIMIZER, Phase.EVAL):
            return
        living = self.graphs.living(partial.claimed)
        # The output of the evaluation itself is still alive when it ends.
        if living != self._living and (measured.phase is Phase.OPTIMIZER or living.forwards > 1):
            self._living = living
            self._emit(GraphsAlive(measured.at, measured.step, **asdict(living)))

    def _models(self) -> tuple[int, ...]:
        tree = self._view.tree
        if len(tree.models) == 1:
            return (tree.models[0].number,)
        roots = {tree.roots[module] for module in self._ran if module >= 0}
        return tuple(model.number for model in tree.models if model.root in roots)

    def _record_and_emit(self, measured: MemoryMeasured) -> None:
        self.peaks.record(measured)
        self._emit(measured)

    def settle(self, kept: GraphSummary | None) -> None:
        """Emit the breakdowns that waited for what autograd keeps: exact if it has recorded nothing since."""
        unsettled, self._unsettled = self._unsettled, []
        for measured, partial, number in unsettled:
            if kept is not None:
                exact = self.accountant.allocator.exact and number == sequence_number()
                held = partial.divided(kept.joined(self.graphs.storages()))
                self._record_and_emit(replace(measured, held=held, exact=exact))
            else:
                self._emit(measured)


class PhasePeaks:
    """The known parts of the peaks of one step's phases: readings also fall within phases, and a phase may repeat in a step."""

    def __init__(self) -> None:
        self._present: Peak | None = None
        """Peak of the running phase, up to the last reading."""
        self._forward: Peak | None = None
        """Peak of the forward, if something came between it and backward: what it keeps is known only when backward begins."""
        self._emitted: dict[Phase, MemoryMeasured] = {}

    def begin_step(self, before: Peak, *, listening: bool) -> None:
        """Begin a sampled step within a phase. The beginning of that phase was observed only if hooks were `listening` then."""
        self._present = before if listening else Peak(None, False)
        self._forward = None
        self._emitted.clear()

    def read_within(self, part: Peak) -> None:
        """Record a reading within the running phase, which continues."""
        self._present = part

    def skipped(self) -> None:
        """Discard the peak of a phase that is not emitted."""
        self._present = None

    def forward_left(self, part: Peak) -> None:
        """Record the end of a forward that is emitted only when backward begins."""
        self._forward, self._present = _joined(self._forward, _joined(self._present, part)), None

    def of(self, phase: Phase, part: Peak) -> Peak:
        """Return the peak of a phase that has ended, including its last part."""
        known, self._present = _joined(self._present, part), None
        if phase is Phase.FORWARD:
            # The gradients of the previous step may have existed when it ended, and be freed when backward begins.
            known, self._forward = _joined(self._forward, known), None
        return known

    def record(self, breakdown: MemoryMeasured) -> None:
        """Record a breakdown emitted in the current step."""
        self._emitted[breakdown.phase] = breakdown

    @property
    def emitted(self) -> Collection[MemoryMeasured]:
        """The breakdowns of the current step that were emitted."""
        return self._emitted.values()

    def of_step(self) -> tuple[int | None, MemoryBytes | None]:
        """Return the peak of forward, backward and optimizer step if all are exact, and what backward left at its end.

        Those of several devices are upper bounds, whose differences say nothing.
        """
        of_step = [each for phase, each in self._emitted.items() if phase in PHASES_OF_A_STEP]
        known = [each.peak for each in of_step if each.peak_exact and each.peak is not None and not each.devices]
        backward = self._emitted.get(Phase.BACKWARD)
        highest = max(known) if known and len(known) == len(of_step) else None
        return highest, backward.held if backward is not None else None

    def once_more(self, phase: Phase, part: Peak) -> MemoryMeasured | None:
        """Return a repeated phase's breakdown with the higher peak (gradients are accumulated); None if the peak is not higher.

        Only exact peaks are emitted again; None for any other.
        """
        (peak, exact, devices), breakdown = self.of(phase, part), self._emitted.get(phase)
        if breakdown is None or not exact or not breakdown.peak_exact or peak is None or peak <= (breakdown.peak or 0):
            return None
        self._emitted[phase] = higher = replace(breakdown, peak=peak, devices=joined(devices, breakdown.devices))
        return higher


def _joined(first: Peak | None, second: Peak) -> Peak:
    if first is None:
        return second
    known = [peak.bytes for peak in (first, second) if peak.bytes is not None]
    is_exact = first.is_exact and second.is_exact
    return Peak(max(known, default=None), is_exact, joined(first.devices, second.devices))
