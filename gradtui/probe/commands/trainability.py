"""Freeze and unfreeze parameters on command. Training thread only."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from gradtui.probe.commands import norm_statistics, requires_grad
from gradtui.probe.commands.freeze_registry import FreezeRegistry
from gradtui.probe.commands.optimizer_state import OptimizerStates, Restore
from gradtui.probe.commands.preconditions import Training, module_at
from gradtui.probe.commands.undo import in_order
from gradtui.probe.gradients import GradNormCollector, rounded_updates
from gradtui.probe.model import IndexMapping, Lineage, is_same_model, lineage, lineages
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo, TargetGone, ranks
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import SetTrainable, TakeUpFreezes, TrainOnly
from gradtui.protocol.vocabulary import Changed, ParameterState
from gradtui.state.selection import spellings
from gradtui.state.toggles import restored
from gradtui.text import listed, plural, refusals
from gradtui.transport.in_process import CommandQueue


class TrainabilityController:
    """Sets which parameters are trainable, and keeps track of what the user froze.

    `here` returns the step at the boundary and whether the script updates its parameters itself, without an optimizer.
    """

    def __init__(
        self,
        context: ProbeContext,
        norms: GradNormCollector,
        step_sampler: StepSampler,
        here: Callable[[], tuple[int, bool]],
        commands: CommandQueue,
    ) -> None:
        self._commands = commands
        self._view = context.models
        self._norms = norms
        self._step_sampler = step_sampler
        self._here = here
        self._frozen: set[int] = set()
        """Indexes of the parameters that a command froze and that trained before, as far as was known."""
        self._untried: set[int] = set()
        """Indexes of the parameters that a command unfroze and that were not yet found to train or to let a gradient pass."""
        self._loaded: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        """The parameters and modules named by a saved state that has not been applied yet."""
        self._missing: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        """Those of them that no model had. Their model may be found later."""
        self.freezes = FreezeRegistry(context, self._training)
        self.states = OptimizerStates(context.models.joined)

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new indexes, and apply the missing part of a saved state if its model has been found."""
        self._frozen = moved.parameter_set(self._frozen)
        self._untried = moved.parameter_set(self._untried)
        self.freezes.tree_changed()
        frozen, holding = self._missing
        if any(self._parameter(path) is not None for path in frozen) or any(map(self._module, holding)):
            self.load(frozen, holding)

    def load(self, frozen: tuple[str, ...], holding: tuple[str, ...]) -> None:
        """Freeze these parameters and hold these modules' statistics at the next boundary."""
        self._loaded, self._missing = (frozen, holding), ((), ())
        self._commands.submit(lambda id_: TakeUpFreezes(id_, frozen, holding), "script")

    def detach(self) -> None:
        """Stop holding statistics and bring back offloaded state. Otherwise the script's objects stay as they are."""
        self.freezes.statistics.modules = []
        self.states.bring_all_back()

    def set_trainable(self, command: SetTrainable) -> CommandResult:
        """Freeze or unfreeze the parameters that the command names. Raises `CommandRefused`."""
        path, named = self._named(command)
        done = self._set(replace(command, path=path), named)
        return self._warned(done, {index: named[index] for index in done.parameters} if command.trainable else {})

    def refuse(self, command: SetTrainable | TrainOnly) -> None:
        """Raise `CommandRefused` if a command would be refused, as far as that is known without a change.

        What this rank alone has measured counts here, and only here: see `_training`.
        """
        tree = self._view.tree
        if isinstance(command, SetTrainable):
            _, named = self._named(command)
            self._refuse(self._to_be_set(named, command.trainable), trainable=command.trainable)
            return
        _, wanted = requires_grad.select(command.selection, tree)
        rest = {index: tensor for index, tensor in tree.live_parameters() if index not in wanted}
        self._refuse(self._to_be_set(wanted, True), trainable=True)
        # Before the unfreeze it is not known whether the freeze of the rest leaves nothing.
        self._refuse(self._to_be_set(rest, False), trainable=False, leaves_others=True)

    def _named(self, command: SetTrainable) -> tuple[str, dict[int, torch.Tensor]]:
        """Return the path as the tree spells it, and the parameters that the command is about. Raises `CommandRefused`."""
        tree = self._view.tree
        path, named = requires_grad.select(command.path, tree)
        if not command.restore:
            return path, named
        back = restored(self.freezes.in_force(), path, named)
        if not back:
            raise NothingToDo(refusals.nothing_to_restore(path or "the model"))
        return path, {index: tensor for index in back if (tensor := tree.parameter_refs[index]()) is not None}

    def _refuse(self, chosen: dict[int, torch.Tensor], *, trainable: bool, leaves_others: bool = False) -> None:
        training = self._training(measured=True)
        requires_grad.refuse(
            chosen, self._view.tree, training, self._frozen, trainable=trainable, leaves_others=leaves_others
        )

    def train_only(self, command: TrainOnly) -> CommandResult:
        """Unfreeze the named parameters and freeze all others. Raises `CommandRefused`, and then changes nothing."""
        tree = self._view.tree
        path, wanted = requires_grad.select(command.selection, tree)
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
        words = norm_statistics.changed_words(done.changed, self._module)
        return self._warned(replace(done, text="; ".join((f"trains only {shown}: {counts}", *words))), wanted)

    def _warned(self, done: CommandResult, unfrozen: dict[int, torch.Tensor]) -> CommandResult:
        """Return the result with a warning where the dtype of the unfrozen parameters is too coarse for their updates."""
        words = rounded_updates.warning(
            unfrozen, self._view.tree, self._view.live_optimizers(), self._norms.latest.by_index
        )
        return replace(done, text=f"{done.text}; {words}") if words else done

    def _set(self, command: SetTrainable, named: dict[int, torch.Tensor]) -> CommandResult:
        """Freeze or unfreeze those of these parameters that are not yet in the requested state. Raises `CommandRefused`."""
        chosen = self._to_be_set(named, command.trainable)
        modules: list[nn.Module] = []
        if command.statistics and command.trainable:
            covered = {id(module) for module in norm_statistics.covered(self._view.tree, trainable=chosen.keys())}
            # Modules that the script had frozen completely were held by the freeze that is now undone.
            covered -= self.freezes.statistics_with(chosen.values()) if command.restore else set()
            modules = [module for module in self.freezes.statistics.live() if id(module) not in covered]
        elif command.statistics:
            frozen = norm_statistics.covered(self._view.tree, named.keys(), frozen=chosen.keys())
            modules = [module for module in frozen if not self.freezes.statistics.holds(module)]
        moves_state = not command.trainable and command.state != "keep"
        still = [tensor for index, tensor in named.items() if index not in chosen] if moves_state else []
        still = self.states.to_move(command.state, still, self._view.live_optimizers())
        if not chosen and not modules and not still:
            state = "trainable" if command.trainable else "frozen"
            raise NothingToDo(refusals.already(command.path or "the model", state))
        moved = self._move_state(command, still) if still else None
        if not chosen and not modules and moved is not None:
            return moved
        try:
            done = self._toggle(command, chosen, modules)
        except CommandRefused:
            if moved is not None and moved.undo is not None:
                moved.undo()
            raise
        return _both(done, moved) if moved is not None else done

    def _move_state(self, command: SetTrainable, frozen: list[torch.Tensor]) -> CommandResult:
        """Offload or drop the optimizer state of parameters that are frozen already."""
        words, restore = self.states.apply(command.state, frozen, self._view.live_optimizers())
        references = [weakref.ref(tensor) for tensor in frozen]
        indices = tuple(index for tensor in frozen if (index := self._view.tree.owns(tensor)) is not None)
        path = command.path or "the model"

        def undo() -> CommandResult:
            if restore is not None:
                restore()
            else:
                self.states.bring_back(tensor for reference in references if (tensor := reference()) is not None)
            return CommandResult(f"{path}: the optimizer's state is what it was", indices, is_measured=True)

        return CommandResult(f"{path} stays frozen{words}", indices, undo, is_measured=True)

    def take_up(self, command: TakeUpFreezes) -> CommandResult:
        """Freeze what a saved state names, as far as a model has it. Raises `CommandRefused`."""
        tree = self._view.tree
        found = {path: self._parameter(path) for path in command.frozen}
        modules = {path: self._module(path) for path in command.holding}
        gone = tuple(path for path, index in found.items() if index is None)
        unheld = tuple(path for path, module in modules.items() if module is None)
        self._loaded, self._missing = ((), ()), (gone, unheld)
        names = gone + unheld
        missing = refusals.not_in_models(listed(names))
        if len(names) == len(found) + len(modules):
            raise CommandRefused(missing)
        indices = dict.fromkeys(index for index in found.values() if index is not None)
        alive = {index: tensor for index in indices if (tensor := tree.parameter_refs[index]()) is not None}
        chosen = {
            index: tensor for index, tensor in alive.items() if tensor.requires_grad or not self.freezes.holds(tensor)
        }
        holds = self.freezes.statistics.holds
        held = [module for module in modules.values() if module is not None and not holds(module)]
        if not chosen and not held:
            # A schedule may have frozen them already.
            raise NothingToDo(refusals.already("what the saved state names", "frozen"))
        done = self._toggle(SetTrainable(command.id, "what the saved state names", False), chosen, held)
        return replace(done, text=f"{done.text}; left out {missing}") if names else done

    def saved(self) -> tuple[list[str], list[str]]:
        """Return the paths of the parameters that commands have frozen, and of the modules whose statistics are held."""
        tree = self._view.tree
        frozen = [
            tree.parameters[index].path if (index := tree.owns(tensor)) is not None else path
            for path, tensor in self.freezes.parameters()
        ]
        waiting, to_hold = self._loaded
        return sorted({*frozen, *waiting}), sorted({*self._paths(self.freezes.statistics.live()), *to_hold})

    def _to_be_set(self, named: dict[int, torch.Tensor], trainable: bool) -> dict[int, torch.Tensor]:
        held = {id(tensor) for _, tensor in self.freezes.parameters()}
        if trainable:
            return {index: tensor for index, tensor in named.items() if id(tensor) in held or not tensor.requires_grad}
        # A parameter that the script itself switches may be switched off at this moment. Each rank sees that at other steps.
        switched = self._step_sampler.states.switched if ranks.world_size() == 1 else ()
        return {
            index: tensor
            for index, tensor in named.items()
            if id(tensor) not in held and (tensor.requires_grad or index in switched)
        }

    def _parameter(self, path: str) -> int | None:
        """Return the index of the parameter of this name or None; the name may predate a model that has come or gone since."""
        tree = self._view.tree
        for spelling in spellings(path, tree):
            for index, info in enumerate(tree.parameters):
                if spelling in info.names:
                    return index
        return None

    def _module(self, path: str) -> nn.Module | None:
        with suppress(CommandRefused):
            return module_at(path, self._view.tree)[2]
        return None

    def _toggle(
        self, command: SetTrainable, chosen: dict[int, torch.Tensor], modules: list[nn.Module]
    ) -> CommandResult:
        """Apply the change. `modules` are those whose statistics are held or, in an unfreeze, collected again."""
        tree = self._view.tree
        from_here = {id(tensor) for _, tensor in self.freezes.parameters()}
        own = from_here if command.trainable else {id(tensor) for tensor in chosen.values() if tensor.requires_grad}
        offloaded = self.states.offloaded(chosen.values())
        optimizers = self._view.live_optimizers()
        owned = membership.owners(optimizers).keys()
        text, restore = "", None
        if chosen:
            text, restore = requires_grad.set_trainable(
                command, chosen, tree, self._training(), self.states, self._here()[0], self._frozen
            )
        self._register(command, chosen, modules)
        words = norm_statistics.words(modules, held=not command.trainable)
        toggled = [*zip(map(weakref.ref, chosen.values()), lineages(chosen, tree))]
        off = [weakref.ref(tensor) for tensor in chosen.values() if id(tensor) not in own]
        waited = {id(tensor) for tensor in offloaded}
        to_host = [reference for reference in off if id(reference()) not in waited and command.state == "offload"]
        statistics = [weakref.ref(module) for module in modules]
        # State that was offloaded to host memory is offloaded again on undo.
        back = replace(
            command, trainable=not command.trainable, restore=False, state="offload" if offloaded else "keep"
        )

        def undo() -> CommandResult:
            # The script had frozen these itself, so the decision about them is left to the script.
            left = [tensor for reference in off if (tensor := reference()) is not None]
            if not command.trainable:
                self.states.bring_back(tensor for reference in to_host if (tensor := reference()) is not None)
                if left and len(off) == len(toggled) and not statistics:
                    return self._leave_to_script(command, left, restore)
                self.freezes.forget(left)
            done = self._set_back(back, toggled, statistics, restore)
            if command.trainable:
                self.freezes.leave_to_script(left)
            return done

        positions = membership.positions(optimizers)
        joined = tuple(
            (tree.parameters[index].path, *positions[id(tensor)])
            for index, tensor in chosen.items()
            if id(tensor) not in owned and id(tensor) in positions
        )
        paths = tuple(tree.parameters[index].path for index in chosen)
        changed = Changed(command.trainable, paths, self._paths(modules), joined)
        return CommandResult("; ".join(filter(None, (text, words))), tuple(chosen), undo, (changed,))

    def _leave_to_script(
        self, command: SetTrainable, tensors: list[torch.Tensor], restore: Restore | None
    ) -> CommandResult:
        """Undo a freeze of what the script had frozen anyway. Their offloaded state is back already."""
        if restore is not None:
            restore()
        self.freezes.forget(tensors)
        words = "" if command.state == "keep" else "; the optimizer's state is what it was"
        indices = tuple(index for tensor in tensors if (index := self._view.tree.owns(tensor)) is not None)
        text = f"{command.path or 'the model'} is left to the script{words}"
        return CommandResult(text, indices, is_measured=bool(words))

    def _paths(self, modules: Iterable[nn.Module]) -> tuple[str, ...]:
        tree = self._view.tree
        wanted = {id(module) for module in modules}
        return tuple(tree.modules[index].path for index, module in tree.live_modules() if id(module) in wanted)

    def _set_back(
        self,
        command: SetTrainable,
        toggled: list[tuple[weakref.ref[torch.Tensor], Lineage]],
        statistics: list[weakref.ref[nn.Module]],
        restore: Restore | None,
    ) -> CommandResult:
        """Freeze or unfreeze exactly these parameters, except those that are gone, in another model, or changed since."""
        tree = self._view.tree
        living = [(tensor, above) for reference, above in toggled if (tensor := reference()) is not None]
        listed = [(index, tensor, above) for tensor, above in living if (index := tree.owns(tensor)) is not None]
        known = {index: tensor for index, tensor, above in listed if is_same_model(above, lineage(index, tree))}
        if listed and not known:
            index, _, above = listed[0]
            raise TargetGone(refusals.model_replaced(above[-1][0], lineage(index, tree)[-1][0]))
        chosen = {
            index: tensor
            for index, tensor in known.items()
            if (self.freezes.holds(tensor) if command.trainable else tensor.requires_grad)
        }
        living_modules = (module for reference in statistics if (module := reference()) is not None)
        modules = [module for module in living_modules if self.freezes.statistics.holds(module) is command.trainable]
        if not chosen and not modules:
            raise TargetGone(refusals.NOTHING_LEFT)
        if restore is None:
            return self._toggle(command, chosen, modules)
        restore()
        done = self._toggle(command, chosen, modules)
        return replace(done, text=f"{done.text}; the optimizer's state is what it was")

    def _training(self, *, measured: bool | None = None) -> Training:
        """Return how the script trains.

        Each rank measures at steps of its own. So among several ranks what is `measured` counts in the answer to a proposal
        only: what a rank has accepted it carries out.
        """
        step, by_hand = self._here()
        # A parameter that has had a gradient since is no longer untried.
        self._untried -= self._norms.latest.by_index.keys()
        counts = measured or ranks.world_size() == 1
        return Training(
            self._view.optimizers_in_use(),
            scaled=self._norms.losses.scale.is_in_use,
            unreached=self._unreached() if counts else frozenset(),
            untried=self._untried if counts else frozenset(),
            by_hand=by_hand and step > 0,
            in_backward=self._view.steps_in_backward,
        )

    def _unreached(self) -> frozenset[int]:
        return self._step_sampler.states.indices_of(ParameterState.UNREACHED)

    def _register(self, command: SetTrainable, chosen: dict[int, torch.Tensor], modules: list[nn.Module]) -> None:
        indices = set(chosen)
        if command.trainable:
            self.freezes.forget(chosen.values(), modules)
            # A gradient that passes through a module reaches its parameters once they train.
            self._untried |= indices - self._frozen - self._step_sampler.states.indices_of(ParameterState.FLOW_THROUGH)
        else:
            # Whether a later unfreeze is possible must not depend on what each rank has measured.
            self._frozen |= indices if ranks.world_size() > 1 else indices - self._untried - self._unreached()
            named = {self._view.tree.parameters[index].path: tensor for index, tensor in chosen.items()}
            self.freezes.add(command.id, self._here()[0], named, modules, command.path)


def _both(done: CommandResult, moved: CommandResult) -> CommandResult:
    """Return the result of a freeze that also moved the state of what was frozen before."""

    def undo() -> CommandResult:
        if moved.undo is not None:
            moved.undo()
        assert done.undo is not None
        return done.undo()

    words = moved.text.partition("; ")[2]
    text = f"{done.text}; of what was frozen before: {words}"
    return replace(done, text=text, parameters=(*done.parameters, *moved.parameters), undo=undo)
