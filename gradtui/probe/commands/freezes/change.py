"""A freeze or an unfreeze as one value, computed once: it is then checked, applied and recorded. Training thread only."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence, Set

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.model import Lineage, Owners
from gradtui.protocol.commands import SetTrainable


@dataclass(frozen=True)
class Training:
    """How the script trains, as far as known."""

    in_use: Sequence[Sequence[Optimizer]]
    """The optimizers that took part in the latest steps; those that one backward serves are in one group."""
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

    @property
    def optimizers(self) -> list[Optimizer]:
        """All optimizers in use."""
        return [optimizer for together in self.in_use for optimizer in together]


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
    def of(change: Change, lineages: Sequence[Lineage]) -> MadeChange:
        """Return what is to be remembered of a change. `lineages` has one entry for each of its parameters."""
        known = {id(tensor) for tensor in change.in_host_memory}
        moved = [each for each in change.of_script if id(each) not in known and change.command.state == "offload"]
        return MadeChange(
            change.command,
            [*zip(map(weakref.ref, change.parameters.values()), lineages)],
            [*map(weakref.ref, change.of_script)],
            [*map(weakref.ref, moved)],
            [*map(weakref.ref, change.statistics)],
            bool(known),
        )
