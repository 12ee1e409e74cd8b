"""What only rules need to know of a sampled step: weights that were tied, what is not registered, flags, recomputations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from gradtui.probe.autograd import GraphSummary, Recomputation
from gradtui.probe.model import IndexMapping, ModuleTree
from gradtui.probe.sampling.input_gradients import InputGradients
from gradtui.probe.sampling.plain_flags import PlainFlags
from gradtui.probe.sampling.retained_graphs import RetainedGraphs
from gradtui.probe.sampling.sampled_step import SampledStep
from gradtui.probe.sampling.tensor_evidence import TensorEvidence
from gradtui.probe.sampling.tied_weights import TiedWeights
from gradtui.probe.sampling.unfaithful_recomputation import UnfaithfulRecomputation
from gradtui.probe.sampling.unregistered_modules import Calls, Unregistered
from gradtui.probe.sampling.unregistered_tensors import UnregisteredTensors
from gradtui.probe.steps import ProbeContext


class StepEvidence:
    """Calls the parts that look for it. The failure of one of them does not concern the others."""

    def __init__(
        self,
        context: ProbeContext,
        recomputation: Recomputation,
        batches: Callable[[], Iterable[Any]],
        moved: TensorEvidence,
    ) -> None:
        """Create it with a function that returns the living storages of the present step's batches."""
        self._hooks, self._models, self.moved = context.hooks, context.models, moved
        self._tied, self._flags, self._unregistered = TiedWeights(context), PlainFlags(context), Unregistered(context)
        self.tensors = UnregisteredTensors(context, batches)
        self.recomputed, self.inputs = UnfaithfulRecomputation(context), InputGradients(context)
        self.retained = RetainedGraphs(context)
        recomputation.drew = self.recomputed.drew
        self.anomaly_detection = False
        """Whether autograd's anomaly detection was on in the newest of the backwards: scripts try the first one with it."""

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new indexes."""
        self._tied.tree_changed(moved)
        self.moved.tree_changed(moved)

    def backward_begins(self, sampled_step: SampledStep, outputs: object, step: int) -> None:
        """Look at the values with which a sampled step computes, before one of its backwards."""
        self.anomaly_detection = torch.is_anomaly_enabled()
        with self._hooks.guarded("tied weights"):
            self._tied.on_backward(sampled_step.tree, step)
        self.moved.on_backward(sampled_step, outputs)

    def on_gradient(self, inputs: object) -> None:
        """Handle `autograd.grad`."""
        self.inputs.on_gradient()
        self.tensors.on_gradient(inputs)
        self.retained.on_gradient()

    def on_backward(
        self, facts: GraphSummary, tree: ModuleTree, step: int, outputs: Sequence[object], *, keeps_graph: bool
    ) -> None:
        """Look at the graph of a backward that is about to run."""
        self.retained.on_backward(outputs, facts.total, keeps_graph=keeps_graph)
        with self._hooks.guarded("input gradients"):
            self.inputs.on_backward(facts, tree, self._models.live_optimizers(), step)
        if facts.regions.recomputed:
            with self._hooks.guarded("recomputed regions"):
                self.recomputed.on_backward(facts, tree)
        if facts.unknown_leaves:
            with self._hooks.guarded("unregistered tensors"):
                self.tensors.on_backward(facts)

    def on_backward_post(self, step: int) -> None:
        """Look at what that backward has done."""
        with self._hooks.guarded("recomputed regions"):
            self.recomputed.on_backward_post(step)

    def on_step_post(self, calls: Calls, sampled_step: SampledStep, step: int) -> None:
        """Look at the models after the optimizer's step."""
        tree, optimizers = sampled_step.tree, self._models.live_optimizers()
        with self._hooks.guarded("unregistered modules"):
            self._unregistered.on_step_post(calls, tree, optimizers, step)
            self._flags.on_step_post(tree, step)
        if self.tensors.is_wanted:
            with self._hooks.guarded("unregistered tensors"):
                self.tensors.on_step_post(tree, optimizers, step, self._unregistered.parameters())
        self.moved.on_step_post(sampled_step)

    def finish(self) -> None:
        """Conclude at the end of the run."""
        with self._hooks.guarded("input gradients"):
            self.inputs.settle()
