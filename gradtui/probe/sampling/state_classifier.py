"""Find the state of each parameter after a step that was sampled or measured. Training thread only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch.optim import Optimizer

from gradtui.probe.autograd import NewestUse, ParameterUse
from gradtui.probe.frozen import DriftDetector
from gradtui.probe.model import IndexMapping, ModuleTree, optimizer_membership
from gradtui.probe.sampling.copied_models import CopiedModels
from gradtui.probe.sampling.gradient_flow_reporter import GradientFlowReporter
from gradtui.probe.sampling.parameter_states import ParameterStateReporter
from gradtui.probe.sampling.sampled_step import SampledStep
from gradtui.probe.sampling.unowned_parameters import NONE_UNOWNED, UnownedParameters
from gradtui.probe.sampling.unused_optimizer_state import UnusedOptimizerState
from gradtui.probe.steps import DeviceTimes, ProbeContext
from gradtui.protocol.vocabulary import StateReason


class StateClassifier:
    """Joins what a step has shown of the parameters: their gradients, what moved the frozen ones, and who owns them.

    `look_again` has the next steps sampled: two consecutive ones show what moves a frozen parameter.
    """

    def __init__(
        self,
        context: ProbeContext,
        states: ParameterStateReporter,
        gradient_flow: GradientFlowReporter,
        times: DeviceTimes,
        look_again: Callable[[], None],
    ) -> None:
        self._view, self._counter, self._hooks = context.models, context.counter, context.hooks
        self._states, self._gradient_flow, self._times, self._look_again = states, gradient_flow, times, look_again
        self._frozen, self._unused, self._use = DriftDetector(), UnusedOptimizerState(context), NewestUse()
        self._unowned, self._copies = UnownedParameters(context), CopiedModels(context)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self._frozen.tree_changed(moved)
        self._unused.tree_changed(moved)
        self._unowned.tree_changed(moved)

    def step_begins(self, tree: ModuleTree) -> None:
        """Record version counters, and which models have equal values, before the optimizer's step of a sampled step."""
        self._frozen.step_begins(tree.live_parameters())
        if len(tree.models) > 1:
            with self._hooks.guarded("copied models"):
                self._copies.step_begins(tree)

    def classify(
        self,
        sampled_step: SampledStep,
        optimizer: Optimizer | None,
        norms: Mapping[int, float],
        recorded_use: ParameterUse | None,
        *,
        skipped: bool,
    ) -> None:
        """Emit the states after the step of `optimizer`; None where the script has none.

        Args:
            sampled_step: what was recorded of the step.
            optimizer: the one whose step has run or was skipped.
            norms: the norm of each gradient that was applied, by index of the parameter.
            recorded_use: which parameters the newest step whose operations were recorded has read.
            skipped: whether the loss scaler or the user skipped the step.
        """
        step, optimizers = self._counter.steps, self._view.live_optimizers()
        if sampled_step.together:
            self._copies.in_one_backward(sampled_step.tree, sampled_step.together)
        # The first optimizer counts as the owner of a parameter that several have.
        owner = optimizer_membership.owners(optimizers if optimizer is None else (optimizer, *optimizers))
        live = list(sampled_step.tree.live_parameters())
        still = [each for each in live if not each[1].requires_grad]
        # Parameters trained in turns may since have been trained in another optimizer's step and switched off again.
        elsewhere: set[int] = set()
        if optimizer is not None:
            elsewhere = {index for index, each in still if owner.get(id(each), (optimizer,))[0] is not optimizer}
        here = [each for each in still if each[0] not in elsewhere]
        if still or self._unused.has_reported:
            with self._hooks.guarded("optimizer state of frozen parameters"):
                self._unused.on_step_post(sampled_step.tree, still, owner, step)
        known = self._frozen.moved.copy()
        with self._times.own():
            moved = self._frozen.on_step_post(step, optimizer, here, elsewhere, norms)
        # A step that moves one Parameter moves all others that share its memory.
        moved |= {
            index: StateReason.NONE for group in sampled_step.tree.same_storage for index in group if index in moved
        }
        if any(cause is StateReason.NONE for index, cause in moved.items() if index not in known):
            self._look_again()
        unowned = NONE_UNOWNED
        orphans = [each for each in live if each[1].requires_grad and id(each[1]) not in owner]
        if orphans and optimizer is not None:
            with self._hooks.guarded("parameters of no optimizer"), self._times.own():
                registered = self._view.discovery.optimizers.all()
                tree = sampled_step.tree
                unowned = self._unowned.on_step_post(tree, orphans, registered, step)
                self._copies.wrote(tree, unowned.written)
        frozen = frozenset([index for index, _ in still])
        use = self._use.with_frozen(frozen, sampled_step.tree.listing, recorded_use)
        found = sampled_step.classify(
            self._states.now,
            optimizer,
            owner,
            norms,
            moved,
            unowned,
            self._gradient_flow.evaluated,
            use,
            skipped=skipped,
        )
        self._states.classified(found, step)
