"""The freezes that the saved state of a run names: apply them to its models, and name those in force. Training thread only."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gradtui.probe.commands.freezes import norm_statistics
from gradtui.probe.commands.freezes.row_freezes import RowFreezes
from gradtui.probe.commands.freezes.trainability import TrainabilityController
from gradtui.probe.commands.selections import module_named
from gradtui.probe.commands.undo import in_order
from gradtui.probe.model import ModuleTree
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import SetRowsTrainable, SetTrainable, TakeUpFreezes
from gradtui.run.state.tree.selection import spellings
from gradtui.run.text import listed, refusals
from gradtui.transport.in_process import CommandQueue

Saved = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""The fields of `TakeUpFreezes`."""
_NOTHING: Saved = ((), (), ())


class SavedFreezes:
    """Freezes at a boundary what a saved state names, as far as a model has it, and the rest when its model is found."""

    def __init__(
        self, context: ProbeContext, trainability: TrainabilityController, rows: RowFreezes, commands: CommandQueue
    ) -> None:
        self._view, self._trainability, self._rows, self._commands = context.models, trainability, rows, commands
        self._loaded = _NOTHING
        """What a saved state names that has not been applied yet."""
        self._missing = _NOTHING
        """The part of it that no model had. Its model may be found later."""

    def tree_changed(self) -> None:
        """Apply the missing part of a saved state if its model has been found."""
        tree, (frozen, holding, rows) = self._view.tree, self._missing
        paths = (*frozen, *(_path_and_rows(each)[0] for each in rows))
        if any(_parameter(path, tree) is not None for path in paths) or any(module_named(p, tree) for p in holding):
            self.load(*self._missing)

    def load(self, frozen: tuple[str, ...], holding: tuple[str, ...], rows: tuple[str, ...] = ()) -> None:
        """Freeze these parameters and rows, and hold these modules' statistics, at the next boundary."""
        self._loaded, self._missing = (frozen, holding, rows), _NOTHING
        self._commands.submit(lambda id_: TakeUpFreezes(id_, frozen, holding, rows), "script")

    def take_up(self, command: TakeUpFreezes) -> CommandResult:
        """Freeze what a saved state names, as far as a model has it. Raises `CommandRefused`."""
        self._loaded, self._missing = _NOTHING, _NOTHING
        if not command.rows:
            return self._take_up_whole(command)
        words, changes = [], []
        try:
            done = self._take_up_whole(command) if command.frozen or command.holding else None
            changes += [lambda: done] if done is not None else []
        except CommandRefused as refusal:
            words.append(str(refusal))
        named = {each: _path_and_rows(each) for each in command.rows}
        gone = tuple(each for each, (path, _) in named.items() if _parameter(path, self._view.tree) is None)
        self._missing = (*self._missing[:2], gone)
        changes += [
            partial(self._rows.set, SetRowsTrainable(command.id, path, False, rows))
            for each, (path, rows) in named.items()
            if each not in gone
        ]
        if gone:
            words.append(f"left out {refusals.not_in_models(listed([named[each][0] for each in gone]))}")
        if not changes:
            raise CommandRefused("; ".join(words))
        frozen = in_order(changes)
        return replace(frozen, text="; ".join([frozen.text, *words]))

    def _take_up_whole(self, command: TakeUpFreezes) -> CommandResult:
        """Freeze the whole parameters that a saved state names. Raises `CommandRefused`."""
        tree, freezes = self._view.tree, self._trainability.freezes
        found = {path: _parameter(path, tree) for path in command.frozen}
        modules = {path: module_named(path, tree) for path in command.holding}
        gone = tuple(path for path, index in found.items() if index is None)
        unheld = tuple(path for path, module in modules.items() if module is None)
        self._missing = (gone, unheld, ())
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

    def saved(self) -> tuple[list[str], list[str], list[str]]:
        """Return the paths of the parameters that commands have frozen, those of the modules whose statistics are held, and the
        frozen rows of others as `TakeUpFreezes` has them."""
        tree, freezes = self._view.tree, self._trainability.freezes
        frozen = [
            tree.parameters[index].path if (index := tree.owns(tensor)) is not None else path
            for path, tensor in freezes.parameters()
        ]
        waiting, to_hold, rows = self._loaded
        holding = norm_statistics.paths(freezes.statistics.live(), tree)
        return sorted({*frozen, *waiting}), sorted({*holding, *to_hold}), sorted({*self._rows.saved(), *rows})


def _path_and_rows(entry: str) -> tuple[str, str]:
    path, _, rows = entry.rpartition(" ")
    return path, rows


def _parameter(path: str, tree: ModuleTree) -> int | None:
    """Return the index of the parameter of this name or None; the name may predate a model that has come or gone since."""
    for spelling in spellings(path, tree):
        for index, info in enumerate(tree.parameters):
            if spelling in info.names:
                return index
    return None
