"""What is known of how the script trains, as far as a freeze depends on it. Training thread only."""

from __future__ import annotations

from collections.abc import Set

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.freezes.change import Change, Training
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import ranks
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.vocabulary import ParameterState


class KnownTraining:
    """Joins what the parts of the probe have measured with what commands have frozen and unfrozen."""

    def __init__(
        self, context: ProbeContext, norms: GradNormCollector, step_sampler: StepSampler, crossing: Crossing
    ) -> None:
        self._view, self._norms, self._step_sampler, self._crossing = context.models, norms, step_sampler, crossing
        self._trained: set[int] = set()
        """Indexes of the parameters that a command froze and that trained before, as far as was known."""
        self.untried: set[int] = set()
        """Indexes of the parameters that a command unfroze and that were not yet found to train or to let a gradient pass."""

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new indexes."""
        self._trained = moved.parameter_set(self._trained)
        self.untried = moved.parameter_set(self.untried)

    def now(self, *, measured: bool = False) -> Training:
        """Return how the script trains.

        Each rank measures at steps of its own. So among several ranks what is `measured` counts in the answer to a proposal
        only: what a rank has accepted it carries out.
        """
        if self.untried:
            # A parameter that has had a gradient since is no longer untried.
            self.untried -= self._norms.latest.by_index.keys()
        counts = measured or ranks.world_size() == 1
        return Training(
            self._view.optimizers_in_use(),
            scaled=self._norms.losses.scale.is_in_use,
            unreached=self._unreached() if counts else frozenset(),
            untried=self.untried if counts else frozenset(),
            by_hand=self._crossing.by_hand and self._crossing.step > 0,
            in_backward=self._view.steps_in_backward,
            trained=self._trained,
        )

    def switched(self) -> Set[int]:
        """Return the indexes of the parameters that the script itself switches, which may be off at this moment.

        Each rank sees that at other steps, so among several ranks there are none.
        """
        return self._step_sampler.states.switched.keys() if ranks.world_size() == 1 else frozenset()

    def record(self, change: Change) -> None:
        """Remember what a command has frozen or unfrozen."""
        indices = set(change.parameters)
        if change.command.trainable:
            # A gradient that passes through a module reaches its parameters once they train.
            passing = self._step_sampler.states.indices_of(ParameterState.FLOW_THROUGH)
            self.untried |= indices - self._trained - passing
        else:
            # Whether a later unfreeze is possible must not depend on what each rank has measured.
            self._trained |= indices if ranks.world_size() > 1 else indices - self.untried - self._unreached()

    def _unreached(self) -> frozenset[int]:
        return self._step_sampler.states.indices_of(ParameterState.UNREACHED)
