"""Report how far the gradient of a sampled step came, and which modules ran without one. Training thread."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.autograd import (
    GraphsOfStep,
    ModuleCallLog,
    grad_mode,
    grad_mode_letters,
    gradient_bytes,
    reach_letters,
    training_flags,
)
from gradtui.probe.model import IndexMapping, bucket_bytes
from gradtui.probe.sampling.compiled_code import CompiledCode
from gradtui.probe.sampling.passing_gradients import PassingGradients
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import GradientFlowMeasured


class GradientFlowReporter:
    """Emits `GradientFlowMeasured`, and remembers the grad mode in which models were evaluated between steps."""

    def __init__(self, context: ProbeContext) -> None:
        self.passing = PassingGradients(context.hooks)
        self._compiled = CompiledCode(context)
        self._norms: tuple[float | None, ...] = ()
        """The newest norms that `passing` has read. A step whose memory is profiled reads none."""
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self.evaluated: dict[int, str] = {}
        """The modules that were evaluated between steps, with the grad mode."""
        self._trained = False
        """Whether a step of these models was reported."""
        self._reported: dict[int, str] = {}
        """Root modules whose evaluation was reported after a step had been, with the grad mode."""
        self._last: tuple[object, str, str, tuple[int, ...]] | None = None
        """The inputs and letters of the previous step. Most steps of a training run have the same ones."""

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new module indexes."""
        self.evaluated = moved.of_modules(self.evaluated)
        self._trained = self._trained and any(former >= 0 for former in moved.modules)
        self._reported = moved.of_modules(self._reported)
        self._last = None
        self._compiled.tree_changed()
        self.passing.drop()
        self._norms = ()

    def evaluation_began(self, root: nn.Module) -> None:
        """Record the grad mode of an evaluation as its root module is called."""
        index = self._view.tree.index_of(root)
        if index >= 0:
            self.evaluated[index] = grad_mode()

    def evaluation_measured(self, device_type: str) -> bool:
        """Report an evaluation that has ended, and return whether it was reported.

        Every evaluation is reported until something has trained, then one of each root module.
        """
        if self._trained and self.evaluated.items() <= self._reported.items():
            return False
        if self._trained:
            self._reported = {**self.evaluated}
        tree = self._view.tree
        modes, flags = grad_mode_letters(tree, {}, self.evaluated, ""), training_flags(tree)
        gradients = gradient_bytes(tree, device_type)
        at, step = self._clock.at(), self._counter.steps
        self._emit(GradientFlowMeasured(at, step, -1, "", modes, flags, (), gradients, listing=tree.listing))
        return True

    def on_step_post(
        self, optimizer: Optimizer | None, graphs: GraphsOfStep | None, trace: ModuleCallLog, device_type: str
    ) -> None:
        """Report the gradient flow of a sampled step that has ended; `graphs` is None if no backward ran in it."""
        if graphs is None:
            return
        tree, self._trained = self._view.tree, True
        self._compiled.on_step_post(tree, graphs, trace)
        if graphs.norms is not None:
            self._norms = tuple(map(graphs.norms.get, range(len(tree.modules)))) if graphs.norms else ()
        reach, modes, called = self._letters(graphs, trace)
        self._emit(
            GradientFlowMeasured(
                self._clock.at(),
                self._counter.steps,
                -1 if optimizer is None else self._view.discovery.register_optimizer(optimizer),
                reach,
                modes,
                training_flags(tree),
                called,
                gradient_bytes(tree, device_type),
                bucket_bytes(tree),
                self._norms,
                listing=tree.listing,
            )
        )

    def _letters(self, graphs: GraphsOfStep, trace: ModuleCallLog) -> tuple[str, str, tuple[int, ...]]:
        # A copy, because a second backward within the same step adds to these.
        basis = graphs.copy(), [*trace.grad_modes.items()], {**self.evaluated}
        if self._last is None or self._last[0] != basis:
            tree = self._view.tree
            reach = reach_letters(tree, graphs, trace, self.evaluated)
            modes = grad_mode_letters(tree, trace.grad_modes, self.evaluated, reach)
            # An evaluation by the script ends before the step that uses its result.
            order = dict.fromkeys(self.evaluated, 0)
            order |= {module: index for index, module in enumerate(trace.grad_modes, start=1)}
            self._last = basis, reach, modes, tuple(order.get(module, -1) for module in range(len(tree.modules)))
        return self._last[1:]
