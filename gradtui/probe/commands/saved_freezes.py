"""The freezes that the saved state of a run names: apply them to its models, and name those in force. Training thread only."""

from __future__ import annotations

from dataclasses import replace

from gradtui.probe.commands import norm_statistics
from gradtui.probe.commands.preconditions import module_named
from gradtui.probe.commands.trainability import TrainabilityController
from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import SetTrainable, TakeUpFreezes
from gradtui.run.state.selection import spellings
from gradtui.run.text import listed, refusals
from gradtui.transport.in_process import CommandQueue

_NOTHING: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


class SavedFreezes:
    """Freezes at a boundary what a saved state names, as far as a model has it, and the rest when its model is found."""

    def __init__(self, context: ProbeContext, trainability: TrainabilityController, commands: CommandQueue) -> None:
        self._view, self._trainability, self._commands = context.models, trainability, commands
        self._loaded = _NOTHING
        """The parameters and modules named by a saved state that has not been applied yet."""
        self._missing = _NOTHING
        """Those of them that no model had. Their model may be found later."""

    def tree_changed(self) -> None:
        """Apply the missing part of a saved state if its model has been found."""
        tree, (frozen, holding) = self._view.tree, self._missing
        if any(_parameter(path, tree) is not None for path in frozen) or any(module_named(p, tree) for p in holding):
            self.load(frozen, holding)

    def load(self, frozen: tuple[str, ...], holding: tuple[str, ...]) -> None:
        """Freeze these parameters and hold these modules' statistics at the next boundary."""
        self._loaded, self._missing = (frozen, holding), _NOTHING
        self._commands.submit(lambda id_: TakeUpFreezes(id_, frozen, holding), "script")

    def take_up(self, command: TakeUpFreezes) -> CommandResult:
        """Freeze what a saved state names, as far as a model has it. Raises `CommandRefused`."""
        tree, freezes = self._view.tree, self._trainability.freezes
        found = {path: _parameter(path, tree) for path in command.frozen}
        modules = {path: module_named(path, tree) for path in command.holding}
        gone = tuple(path for path, index in found.items() if index is None)
        unheld = tuple(path for path, module in modules.items() if module is None)
        self._loaded, self._missing = _NOTHING, (gone, unheld)
        names = gone + unheld
        missing = refusals.not_in_models(listed(names))
        if len(names) == len(found) + len(modules):
            raise CommandRefused(missing)
        indices = dict.fromkeys(index for index in found.values() if index is not None)
        alive = {index: tensor for index in indices if (tensor := tree.parameter_refs[index]()) is not None}
        chosen = {index: tensor for index, tensor in alive.items() if tensor.requires_grad or not freezes.holds(tensor)}
        holds = freezes.statistics.holds
        held = [module for module in modules.values() if module is not None and not holds(module)]
        if not chosen and not held:
            # A schedule may have frozen them already.
            raise NothingToDo(refusals.already("what the saved state names", "frozen"))
        freeze = SetTrainable(command.id, "what the saved state names", False)
        done = self._trainability.freeze(freeze, chosen, held)
        return replace(done, text=f"{done.text}; left out {missing}") if names else done

    def saved(self) -> tuple[list[str], list[str]]:
        """Return the paths of the parameters that commands have frozen, and of the modules whose statistics are held."""
        tree, freezes = self._view.tree, self._trainability.freezes
        frozen = [
            tree.parameters[index].path if (index := tree.owns(tensor)) is not None else path
            for path, tensor in freezes.parameters()
        ]
        waiting, to_hold = self._loaded
        holding = norm_statistics.paths(freezes.statistics.live(), tree)
        return sorted({*frozen, *waiting}), sorted({*holding, *to_hold})


def _parameter(path: str, tree: ModuleTree) -> int | None:
    """Return the index of the parameter of this name or None; the name may predate a model that has come or gone since."""
    for spelling in spellings(path, tree):
        for index, info in enumerate(tree.parameters):
            if spelling in info.names:
                return index
    return None
