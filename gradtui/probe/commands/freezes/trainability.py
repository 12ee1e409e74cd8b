"""Freeze and unfreeze parameters on command. Training thread only.

Each freeze is planned, checked, applied and recorded, in this order: `_plan` computes one `Change`, `_carry_out` does the rest.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.freezes import norm_statistics, optimizer_state, preconditions, requires_grad
from gradtui.probe.commands.freezes.change import Change, KnownTraining, MadeChange
from gradtui.probe.commands.freezes.freeze_registry import FreezeRegistry
from gradtui.probe.commands.freezes.optimizer_state import OptimizerStates, Restore
from gradtui.probe.commands.selections import module_named, select
from gradtui.probe.commands.undo import in_order
from gradtui.probe.gradients import GradNormCollector, rounded_updates
from gradtui.probe.model import IndexMapping, is_same_model
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandResult, NothingToDo, TargetGone
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import SetTrainable, TrainOnly
from gradtui.protocol.events import OptimizersExtended
from gradtui.protocol.freezes import Changed
from gradtui.run.state.changes.toggles import restored
from gradtui.run.text import refusals
from gradtui.run.text.units import plural

_Object = TypeVar("_Object", torch.Tensor, nn.Module)


class TrainabilityController:
    """Sets which parameters are trainable, and keeps track of what the user froze."""

    def __init__(
        self,
        context: ProbeContext,
        norms: GradNormCollector,
        training: KnownTraining,
        crossing: Crossing,
    ) -> None:
        self._view = context.models
        self._norms = norms
        self._training, self._crossing = training, crossing
        self._emit, self._clock = context.emit, context.clock
        self.freezes = FreezeRegistry(context, training)
        self.states = OptimizerStates(context.models.joined)
        self._additions: tuple[Any, Any] = ((), ())
        """The additions to the script's optimizers that were emitted last."""

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new indexes."""
        self._training.tree_changed(moved)
        self.freezes.tree_changed()

    def report(self, step: int) -> None:
        """Emit the pending reports on freezes, and what commands have added to the script's optimizers."""
        self.freezes.report(step)
        additions = optimizer_state.additions(self._view)
        if additions != self._additions:
            self._additions = additions
            self._emit(OptimizersExtended(self._clock.at(), step, *additions))

    def detach(self) -> None:
        """Stop holding statistics and bring back offloaded state. Otherwise the script's objects stay as they are."""
        self.freezes.statistics.modules = []
        self.states.bring_all_back()

    def set_trainable(self, command: SetTrainable) -> CommandResult:
        """Freeze or unfreeze the parameters that the command names. Raises `CommandRefused`."""
        path, named = self._named(command)
        done = self._carry_out(self._plan(replace(command, path=path), named))
        return self._warned(done, {index: named[index] for index in done.parameters}) if command.trainable else done

    def freeze(
        self, command: SetTrainable, chosen: dict[int, torch.Tensor], statistics: list[nn.Module]
    ) -> CommandResult:
        """Freeze exactly these parameters, and hold the statistics of exactly these modules. Raises `CommandRefused`."""
        return self._carry_out(self._change(command, chosen, statistics))

    def train_only(self, command: TrainOnly) -> CommandResult:
        """Unfreeze the named parameters and freeze all others. Raises `CommandRefused`, and then changes nothing."""
        tree = self._view.tree
        path, wanted = select(command.selection, tree)
        shown = path or "the model"
        rest = {index: tensor for index, tensor in tree.live_parameters() if index not in wanted}
        # Unfreeze first: otherwise the freeze could be refused because it would freeze the last trainable parameter.
        unfreeze = partial(self._set, SetTrainable(command.id, path, True), wanted)
        freeze = partial(self._set, SetTrainable(command.id, f"all but {shown}", False), rest)
        try:
            done = in_order([unfreeze, freeze])
        except NothingToDo:
            raise NothingToDo(refusals.already(shown, "all that trains")) from None
        size = sum(tree.parameters[index].count for index in wanted)
        counts = f"{plural(len(wanted), 'tensor')}, {plural(size, 'parameter')}"
        words = norm_statistics.changed_words(done.changed, partial(module_named, tree=tree))
        return self._warned(replace(done, text="; ".join((f"trains only {shown}: {counts}", *words))), wanted)

    def refuse(self, command: SetTrainable | TrainOnly) -> None:
        """Raise `CommandRefused` if a command would be refused, as far as that is known without a change.

        What this rank alone has measured counts here, and only here: see `KnownTraining.now`.
        """
        tree = self._view.tree
        if isinstance(command, SetTrainable):
            _, named = self._named(command)
            preconditions.check(self._to_check(named, trainable=command.trainable), tree)
            return
        _, wanted = select(command.selection, tree)
        rest = {index: tensor for index, tensor in tree.live_parameters() if index not in wanted}
        preconditions.check(self._to_check(wanted, trainable=True), tree)
        # Before the unfreeze it is not known whether the freeze of the rest leaves nothing.
        preconditions.check(self._to_check(rest, trainable=False), tree, leaves_others=True)

    def _to_check(self, named: Mapping[int, torch.Tensor], *, trainable: bool) -> Change:
        """Return a change for its preconditions alone."""
        chosen = self._to_be_set(named, trainable=trainable)
        return self._change(SetTrainable(0, "", trainable), chosen, measured=True)

    def _named(self, command: SetTrainable) -> tuple[str, dict[int, torch.Tensor]]:
        """Return the path as the tree spells it, and the parameters that the command is about. Raises `CommandRefused`."""
        tree = self._view.tree
        path, named = select(command.path, tree)
        if not command.restore:
            return path, named
        back = restored(self.freezes.in_force(), path, named)
        if not back:
            raise NothingToDo(refusals.nothing_to_restore(path or "the model"))
        return path, {index: tensor for index in back if (tensor := tree.parameter_refs[index]()) is not None}

    def _set(self, command: SetTrainable, named: Mapping[int, torch.Tensor]) -> CommandResult:
        return self._carry_out(self._plan(command, named))

    def _plan(self, command: SetTrainable, named: Mapping[int, torch.Tensor]) -> Change:
        """Plan to freeze or unfreeze those of these parameters that are not yet in the requested state.

        Raises `NothingToDo` if all of them are, with their statistics and their optimizer state.
        """
        chosen = self._to_be_set(named, trainable=command.trainable)
        statistics = self._statistics_to_set(command, named, chosen) if command.statistics else []
        moves_state = not command.trainable and command.state != "keep"
        frozen = [tensor for index, tensor in named.items() if index not in chosen] if moves_state else []
        change = self._change(command, chosen, statistics)
        change = replace(change, at_rest=self.states.to_move(command.state, frozen, change.all_owners))
        if not (change.sets_anything or change.at_rest):
            state = "trainable" if command.trainable else "frozen"
            raise NothingToDo(refusals.already(command.path or "the model", state))
        return change

    def _to_be_set(self, named: Mapping[int, torch.Tensor], *, trainable: bool) -> dict[int, torch.Tensor]:
        held = self.freezes.held()
        if trainable:
            return {index: tensor for index, tensor in named.items() if id(tensor) in held or not tensor.requires_grad}
        switched = self._training.switched()
        return {
            index: tensor
            for index, tensor in named.items()
            if id(tensor) not in held and (tensor.requires_grad or index in switched)
        }

    def _statistics_to_set(
        self, command: SetTrainable, named: Mapping[int, torch.Tensor], chosen: Mapping[int, torch.Tensor]
    ) -> list[nn.Module]:
        """Return the modules whose statistics are to be held or, in an unfreeze, collected again."""
        tree, statistics = self._view.tree, self.freezes.statistics
        if not command.trainable:
            frozen = norm_statistics.covered(tree, named.keys(), frozen=chosen.keys())
            return [module for module in frozen if not statistics.holds(module)]
        covered = {id(module) for module in norm_statistics.covered(tree, trainable=chosen.keys())}
        # Modules that the script had frozen completely were held by the freeze that is now undone.
        covered -= self.freezes.statistics_with(chosen.values()) if command.restore else set()
        return [module for module in statistics.live() if id(module) not in covered]

    def _change(
        self,
        command: SetTrainable,
        chosen: Mapping[int, torch.Tensor],
        statistics: Sequence[nn.Module] = (),
        *,
        measured: bool = False,
    ) -> Change:
        """Compute a change of exactly these parameters and modules."""
        held: Set[int] = self.freezes.held() if command.trainable else frozenset()
        of_script = [
            tensor
            for tensor in chosen.values()
            if (id(tensor) not in held if command.trainable else not tensor.requires_grad)
        ]
        training = self._training.now(measured=measured)
        alive = self._view.live_optimizers()
        return Change(
            command,
            self._crossing.step,
            chosen,
            of_script,
            statistics,
            at_rest=(),
            training=training,
            owners=membership.owners(training.optimizers),
            all_owners=membership.owners(alive),
            in_host_memory=self.states.offloaded(chosen.values()),
        )

    def _carry_out(self, change: Change) -> CommandResult:
        """Check, apply and record a change: the order of every freeze and unfreeze, and of their undo.

        Raises `CommandRefused`, and then nothing has changed.
        """
        command, tree = change.command, self._view.tree
        if change.parameters:
            preconditions.check(change, tree)
        moved = self._move_state(change) if change.at_rest else None
        if moved is not None and not change.sets_anything:
            return moved
        text, restore = requires_grad.apply(change, tree, self.states) if change.parameters else ("", None)
        self.freezes.record(change)
        self._training.record(change)
        words = norm_statistics.words(change.statistics, held=not command.trainable)
        undo = partial(self._take_back, MadeChange.of(change, tree), restore)
        done = CommandResult(
            "; ".join(filter(None, (text, words))), tuple(change.parameters), undo, (self._changed(change),)
        )
        return done if moved is None else _both(done, moved)

    def _changed(self, change: Change) -> Changed:
        """Return what a change has set, as plain data."""
        tree, paths = self._view.tree, []
        joined: list[tuple[str, int, int]] = []
        positions = membership.positions(self._view.live_optimizers()) if change.command.trainable else {}
        for index, tensor in change.parameters.items():
            paths.append(tree.parameters[index].path)
            if id(tensor) in positions and id(tensor) not in change.all_owners:
                joined.append((paths[-1], *positions[id(tensor)]))
        return Changed(
            change.command.trainable, tuple(paths), norm_statistics.paths(change.statistics, tree), tuple(joined)
        )

    def _move_state(self, change: Change) -> CommandResult:
        """Offload or drop the optimizer state of the parameters that are frozen already."""
        words, restore = self.states.apply(change.command.state, change.at_rest, change.all_owners)
        indices = self._view.tree.listed(change.at_rest)
        path = change.command.path or "the model"
        undo = partial(self._move_state_back, path, indices, [*map(weakref.ref, change.at_rest)], restore)
        return CommandResult(f"{path} stays frozen{words}", indices, undo, is_measured=True)

    def _move_state_back(
        self,
        path: str,
        indices: tuple[int, ...],
        frozen: Sequence[weakref.ref[torch.Tensor]],
        restore: Restore | None,
    ) -> CommandResult:
        if restore is not None:
            restore()
        else:
            self.states.bring_back(_living(frozen))
        return CommandResult(f"{path}: the optimizer's state is what it was", indices, is_measured=True)

    def _take_back(self, made: MadeChange, restore: Restore | None) -> CommandResult:
        """Undo a change that was made. `restore` restores the optimizer state that it dropped. Raises `CommandRefused`."""
        command, of_script = made.command, _living(made.of_script)
        if not command.trainable:
            self.states.bring_back(_living(made.to_host))
            is_all = len(made.of_script) == len(made.parameters) and not made.statistics
            if of_script and is_all:
                return self._leave_to_script(command, of_script, restore)
            self.freezes.forget(of_script)
        change = self._plan_back(made)
        if restore is not None:
            restore()
        done = self._carry_out(change)
        if command.trainable:
            self.freezes.leave_to_script(of_script)
        return replace(done, text=f"{done.text}; the optimizer's state is what it was") if restore is not None else done

    def _plan_back(self, made: MadeChange) -> Change:
        """Plan to set exactly what was set, except what is gone, in another model, or changed since. Raises `TargetGone`."""
        tree, trainable = self._view.tree, not made.command.trainable
        living = [(tensor, above) for reference, above in made.parameters if (tensor := reference()) is not None]
        listed = [(index, tensor, above) for tensor, above in living if (index := tree.owns(tensor)) is not None]
        known = {
            index: tensor for index, tensor, above in listed if is_same_model(above, tree.lineage(tree.owners[index]))
        }
        if listed and not known:
            index, _, above = listed[0]
            raise TargetGone(refusals.model_replaced(above[-1][0], tree.lineage(tree.owners[index])[-1][0]))
        chosen = {
            index: tensor
            for index, tensor in known.items()
            if (self.freezes.holds(tensor) if trainable else tensor.requires_grad)
        }
        modules = [each for each in _living(made.statistics) if self.freezes.statistics.holds(each) is trainable]
        if not chosen and not modules:
            raise TargetGone(refusals.NOTHING_LEFT)
        # State that was offloaded to host memory is offloaded again.
        command = SetTrainable(
            made.command.id, made.command.path, trainable, state="offload" if made.was_in_host_memory else "keep"
        )
        return self._change(command, chosen, modules)

    def _leave_to_script(
        self, command: SetTrainable, tensors: list[torch.Tensor], restore: Restore | None
    ) -> CommandResult:
        """Undo a freeze of what the script had frozen anyway. Their offloaded state is back already."""
        if restore is not None:
            restore()
        self.freezes.forget(tensors)
        words = "" if command.state == "keep" else "; the optimizer's state is what it was"
        text = f"{command.path or 'the model'} is left to the script{words}"
        return CommandResult(text, self._view.tree.listed(tensors), is_measured=bool(words))

    def _warned(self, done: CommandResult, unfrozen: Mapping[int, torch.Tensor]) -> CommandResult:
        """Return the result with a warning where the dtype of the unfrozen parameters is too coarse for their updates."""
        words = rounded_updates.warning(
            unfrozen, self._view.tree, self._view.live_optimizers(), self._norms.latest.by_index
        )
        return replace(done, text=f"{done.text}; {words}") if words else done


def _living(references: Iterable[weakref.ref[_Object]]) -> list[_Object]:
    return [each for reference in references if (each := reference()) is not None]


def _both(done: CommandResult, moved: CommandResult) -> CommandResult:
    """Return the result of a freeze that also moved the state of what was frozen before."""
    words = moved.text.partition("; ")[2]
    text = f"{done.text}; of what was frozen before: {words}"
    return replace(
        done, text=text, parameters=(*done.parameters, *moved.parameters), undo=partial(_undo_both, done, moved)
    )


def _undo_both(done: CommandResult, moved: CommandResult) -> CommandResult:
    if moved.undo is not None:
        moved.undo()
    assert done.undo is not None
    return done.undo()
