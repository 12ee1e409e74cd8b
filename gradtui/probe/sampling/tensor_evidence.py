"""Look for tensors that move, or stay, against the intent of a script, in sampled steps. Training thread.

Each part is guarded by itself: a part that fails is switched off, and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.probe.autograd import ModuleCallLogger, mixed_axes, unfit_loss_inputs, zero_derivatives
from gradtui.probe.frozen import AveragedCopies, Masked, MaskedRows, OwnWrites
from gradtui.probe.model import IndexMapping, ModuleTree
from gradtui.probe.sampling.gradient_flow_reporter import GradientFlowReporter
from gradtui.probe.sampling.parameter_states import ParameterStateReporter
from gradtui.probe.sampling.sampled_step import SampledStep, sequence
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import (
    AveragedCopyCompared,
    AxesMixed,
    Event,
    OwnForwardWrites,
    RowsMasked,
    UnfitLossInputs,
    ZeroDerivativesFound,
)
from gradtui.protocol.vocabulary import ParameterState

_ZERO = ParameterState.ZERO.value
_SEARCHES = 3
"""The maximum number of searches for operations with a derivative of zero, and of backwards whose graph is searched."""
_EARLY, _BETWEEN = 2, 8
"""Parameters and modules are chosen anew in the first sampled steps after a listing, and then in each of so many."""
_MIN_SAMPLES = 3
"""Samples with the same masked rows before they are told."""


class TensorEvidence:
    """Frozen tensors that their own forward writes, masked rows, averaged copies, gradients of zeros. Emits what changes."""

    def __init__(
        self,
        context: ProbeContext,
        tracer: ModuleCallLogger,
        states: ParameterStateReporter,
        gradient_flow: GradientFlowReporter,
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter, self._hooks = context.counter, context.hooks
        self._states, self._gradient_flow = states, gradient_flow
        self._writes, self._copies = OwnWrites(), AveragedCopies()
        self.rows = MaskedRows()
        """The step sampler calls the two functions below for it only where a parameter is chosen."""
        tracer.watch = self._writes
        self._samples = 0
        self._searches = self._losses = 0
        self._told: dict[object, object] = {}
        """What each part has emitted last."""
        self._unfit_inputs: set[tuple[str, str, str]] = set()
        self._mixed: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...] = ()

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new module and parameter indexes."""
        self._writes.tree_changed()
        self.rows.tree_changed(moved)
        self._copies.tree_changed(moved)
        self._searches = self._losses = self._samples = 0
        self._told.clear()
        self._unfit_inputs.clear()
        self._mixed = ()

    def step_began(self, tree: ModuleTree) -> None:
        """Choose what is looked at in the sampled step that begins."""
        # The script registers hooks, freezes parameters and changes modes at any time, mostly early.
        self._samples += 1
        if self._samples <= _EARLY or self._samples % _BETWEEN == 0:
            with self._hooks.guarded("own writes"):
                self._writes.choose(tree)
            with self._hooks.guarded("masked rows"):
                self.rows.choose(tree)

    def on_backward(self, sampled_step: SampledStep, outputs: object) -> None:
        """Look at the graph before a backward: in the first ones at the loss, and if gradients are zeros for their cause."""
        if self._losses < _SEARCHES:
            self._losses += 1
            with self._hooks.guarded("losses"):
                self._look_at_loss(sampled_step, sequence(outputs))
            with self._hooks.guarded("views"):
                self._look_at_views(sampled_step, sequence(outputs))
        if _ZERO in self._states.now.letters and self._searches < _SEARCHES:
            with self._hooks.guarded("zero derivatives"):
                self._search(sampled_step, sequence(outputs), self._states.indices_of(ParameterState.ZERO))

    def on_backward_post(self, sampled_step: SampledStep) -> None:
        """Look at the gradients that a backward has left."""
        with self._hooks.guarded("masked rows"):
            self.rows.on_backward_post(sampled_step.tree)

    def step_begins(self, sampled_step: SampledStep) -> None:
        """Look at the gradients that the optimizer's step is about to apply."""
        with self._hooks.guarded("masked rows"):
            self.rows.step_begins(sampled_step.tree)

    def on_step_post(self, sampled_step: SampledStep) -> None:
        """Compare what a sampled step has changed, when its optimizer step has ended."""
        tree, step = sampled_step.tree, self._counter.steps
        if self._writes.modules:
            with self._hooks.guarded("own writes"):
                if changed := self._writes.on_step_post():
                    self._tell(
                        "writes", frozenset(changed), OwnForwardWrites(self._clock.at(), step, tuple(sorted(changed)))
                    )
        if self.rows.chosen:
            with self._hooks.guarded("masked rows"):
                self.rows.step_ended(tree)
                for index, known in self.rows.found.items():
                    if known.samples >= _MIN_SAMPLES:
                        self._tell_rows(index, known)
        if self._copies.is_new or self._copies.pairs:
            with self._hooks.guarded("averaged copies"):
                evaluated = self._gradient_flow.evaluated
                if self._copies.on_step_post(tree, sampled_step.trace.grad_modes, evaluated, step):
                    self._tell_copies()

    def _look_at_loss(self, sampled_step: SampledStep, outputs: Sequence[object]) -> None:
        modules = sampled_step.tree.modules
        found = {
            (kind, loss, modules[module].path if module >= 0 else "")
            for kind, loss, module in unfit_loss_inputs(outputs, sampled_step.trace)
        }
        if found:
            self._unfit_inputs |= found
            operations = tuple(sorted(self._unfit_inputs))
            self._tell("losses", operations, UnfitLossInputs(self._clock.at(), self._counter.steps + 1, operations))

    def _look_at_views(self, sampled_step: SampledStep, outputs: Sequence[object]) -> None:
        modules = sampled_step.tree.modules
        found = {
            (before, after, modules[module].path if module >= 0 else "")
            for before, after, module in mixed_axes(outputs, sampled_step.trace)
        }
        # One of each module: the batch may have another size in each step.
        if new := {view[2]: view for view in found if all(view[2] != known[2] for known in self._mixed)}:
            self._mixed += tuple(sorted(new.values()))
            self._tell("views", self._mixed, AxesMixed(self._clock.at(), self._counter.steps + 1, self._mixed))

    def _search(self, sampled_step: SampledStep, outputs: Sequence[object], zero: frozenset[int]) -> None:
        self._searches += 1
        tree = sampled_step.tree
        live = {index: each for index, each in tree.live_parameters() if index in zero}
        by_id = {id(each): index for index, each in live.items()}
        found = zero_derivatives(outputs, sampled_step.trace, by_id)
        behind = sorted({by_id[key] for _, _, keys in found for key in keys})
        if found:
            operations = {
                (function, tree.modules[module].path if module >= 0 else "", len(keys))
                for function, module, keys in found
            }
            paths = tuple(tree.parameters[index].path for index in behind)
            event = ZeroDerivativesFound(self._clock.at(), self._counter.steps + 1, tuple(sorted(operations)), paths)
            self._tell("zero derivatives", (event.operations, paths), event)

    def _tell_rows(self, index: int, known: Masked) -> None:
        path, is_deliberate = self._view.tree.parameters[index].path, known.zeroed > 0 or known.is_deliberate
        figures = known.count, len(known.rows), known.samples, known.moved, known.by_hook, is_deliberate
        event = RowsMasked(self._clock.at(), self._counter.steps, path, *figures)
        self._tell(path, (len(known.rows), known.moved > 1, is_deliberate), event)

    def _tell_copies(self) -> None:
        for pair in self._copies.pairs:
            if not pair.changed:
                continue
            (copied, copied_elements), (source, source_elements) = pair.changed["copy"], pair.changed["source"]
            buffers = pair.changed["copy buffers"][0], pair.changed["source buffers"][0]
            dtype = str(pair.dtype).removeprefix("torch.")
            self._emit(
                AveragedCopyCompared(
                    self._clock.at(), self._counter.steps, pair.copy, pair.source, dtype, pair.since, pair.is_called,
                    pair.buffers, (copied, source), (copied_elements, source_elements), buffers,
                )
            )  # fmt: skip

    def _tell(self, part: object, figures: object, event: Event) -> None:
        if self._told.get(part) != figures:
            self._told[part] = figures
            self._emit(event)
