"""What a rank answers to a command that all ranks would carry out, without a change of anything. Training thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.commands.checkpointing.checkpoint_activations import Checkpointing
from gradtui.probe.commands.freezes.row_freezes import RowFreezes
from gradtui.probe.commands.freezes.trainability import TrainabilityController
from gradtui.probe.commands.param_groups.learning_rates import LearningRates
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.commands.training_mode import modules_to_set
from gradtui.probe.commands.undo import UndoStack
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import CommandRefused, ranks
from gradtui.protocol.commands import (
    Command,
    KeepState,
    ReturnToState,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    TrainOnly,
    Undo,
)
from gradtui.run.state.changes.objections import objection_to


@dataclass(frozen=True)
class RankAnswer:
    """Checks a command by the same preconditions as the handler that would carry it out."""

    view: ModelRegistry
    trainability: TrainabilityController
    rows: RowFreezes
    checkpointing: Checkpointing
    learning_rates: LearningRates
    undo: UndoStack
    keeping: StateKeeping

    def objection(self, command: Command) -> str | None:
        """Return why this rank would refuse the command; None if nothing known speaks against it."""
        checks: dict[type[Command], Callable[[Any], object]] = {
            SetTrainable: self.trainability.refuse,
            TrainOnly: self.trainability.refuse,
            SetRowsTrainable: self.rows.refuse,
            SetCheckpointing: self.checkpointing.module_to_set,
            SetMode: lambda command: modules_to_set(command, self.view.tree),
            SetGroup: self.learning_rates.refuse_group,
            SetLearningRate: self.learning_rates.refuse,
            Undo: lambda _: self.undo.refuse(),
            KeepState: self.keeping.refuse_keep,
            ReturnToState: self.keeping.refuse,
        }
        objection = objection_to(command) or ranks.objection_to_agreed(command)
        check = checks.get(type(command))
        if objection is None and check is not None:
            try:
                check(command)
            except CommandRefused as refusal:
                objection = str(refusal)
        return objection
