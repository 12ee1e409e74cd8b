"""The value that a freeze or an unfreeze computes once, before it is checked, applied and recorded. Training thread only.

It contains what the probe knows of the training.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence, Set

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.model import IndexMapping, Lineage, ModuleTree, Owners
from gradtui.probe.runtime import ranks
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import ParameterState


@dataclass(frozen=True)
class Training:
    """How the script trains, as far as known."""

    in_use: Sequence[Sequence[Optimizer]]
    """The optimizers that took part in the latest steps; those that one backward serves are in one group."""
    optimizers: Sequence[Optimizer]
    """All of them."""
    scaled: bool
    """The script uses a GradScaler."""
    unreached: Set[int]
    """Indexes of parameters that a sampled backward did not reach."""
    untried: Set[int]
    """Indexes of parameters that were unfrozen so recently that no backward has run since."""
    by_hand: bool
    """The script has no optimizer and updates its parameters itself."""
    in_backward: bool | None
    """Whether an optimizer has stepped during backward; None if none has stepped at all."""
    trained: Set[int]
    """Indexes of the parameters that commands have frozen and that trained before."""


@dataclass(frozen=True)
class Change:
    """What a freeze or an unfreeze will do. It has references to the script's objects, and ends with the boundary."""

    command: SetTrainable
    """Its path is as the answer spells it."""
    step: int
    """The step at the boundary."""
    parameters: Mapping[int, torch.Tensor]
    """The parameters to set, by index: those that are not yet in the requested state."""
    of_script: Sequence[torch.Tensor]
    """Those of them that the script itself has frozen."""
    statistics: Sequence[nn.Module]
    """The modules whose running statistics are held from now on or, in an unfreeze, collected again."""
    at_rest: Sequence[torch.Tensor]
    """Parameters that are frozen already, and whose optimizer state is offloaded or dropped with this freeze."""
    training: Training
    owners: Owners
    """The optimizer in use and the group of each parameter."""
    all_owners: Owners
    """The same for all optimizers that are alive."""
    in_host_memory: Sequence[torch.Tensor]
    """Those of the parameters whose optimizer state was offloaded before."""

    @property
    def sets_anything(self) -> bool:
        """Whether it sets parameters or statistics; otherwise it only moves optimizer state."""
        return bool(self.parameters or self.statistics)


@dataclass(frozen=True)
class MadeChange:
    """A change that was made, as its undo needs it. It keeps no object of the script alive."""

    command: SetTrainable
    parameters: Sequence[tuple[weakref.ref[torch.Tensor], Lineage]]
    """Those that were set, each with the modules around it then."""
    of_script: Sequence[weakref.ref[torch.Tensor]]
    """Those that the script itself had frozen. Undo leaves the decision about them to the script."""
    to_host: Sequence[weakref.ref[torch.Tensor]]
    """Those of them whose optimizer state the command has offloaded to host memory."""
    statistics: Sequence[weakref.ref[nn.Module]]
    was_in_host_memory: bool
    """Optimizer state that undo offloads again was in host memory before."""

    @staticmethod
    def of(change: Change, tree: ModuleTree) -> MadeChange:
        """Return what is to be remembered of a change."""
        modules = [tree.owners[index] for index in change.parameters]
        # Parameters of one module share their lineage.
        lineages = {module: tree.lineage(module) for module in set(modules)}
        known = {id(tensor) for tensor in change.in_host_memory}
        moved = [each for each in change.of_script if id(each) not in known and change.command.state == "offload"]
        return MadeChange(
            change.command,
            [*zip(map(weakref.ref, change.parameters.values()), map(lineages.__getitem__, modules))],
            [*map(weakref.ref, change.of_script)],
            [*map(weakref.ref, moved)],
            [*map(weakref.ref, change.statistics)],
            bool(known),
        )


class KnownTraining:
    """Joins what the parts of the probe have measured with what commands have frozen and unfrozen."""

    def __init__(
        self, context: ProbeContext, norms: GradNormCollector, step_sampler: StepSampler, crossing: Crossing
    ) -> None:
        self._view, self._norms, self._states, self._crossing = context.models, norms, step_sampler.states, crossing
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
        counts, in_use = measured or ranks.world_size() == 1, self._view.optimizers_in_use()
        return Training(
            in_use,
            [optimizer for together in in_use for optimizer in together],
            scaled=self._norms.losses.scale.is_in_use,
            unreached=self._states.indices_of(ParameterState.UNREACHED) if counts else frozenset(),
            untried=self.untried if counts else frozenset(),
            by_hand=self._crossing.by_hand and self._crossing.step > 0,
            in_backward=self._view.steps_in_backward,
            trained=self._trained,
        )

    def switched(self) -> Set[int]:
        """Return the indexes of the parameters that the script itself switches, which may be off at this moment.

        Each rank sees that at other steps, so among several ranks there are none.
        """
        return self._states.switched.keys() if ranks.world_size() == 1 else frozenset()

    def record(self, change: Change) -> None:
        """Remember what a command has frozen or unfrozen."""
        indices = set(change.parameters)
        if change.command.trainable:
            # A gradient that passes through a module reaches its parameters once they train.
            self.untried |= indices - self._trained - self._states.indices_of(ParameterState.FLOW_THROUGH)
        else:
            # Whether a later unfreeze is possible must not depend on what each rank has measured.
            self._trained |= indices - change.training.untried - change.training.unreached
