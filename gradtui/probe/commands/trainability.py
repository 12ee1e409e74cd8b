"""Freeze and unfreeze parameters on command. Training thread only."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from gradtui.probe.commands import norm_statistics, requires_grad
from gradtui.probe.commands.freeze_registry import FreezeRegistry
from gradtui.probe.commands.optimizer_state import OptimizerStates, Treated
from gradtui.probe.commands.refusals import Training
from gradtui.probe.commands.undo import in_order
from gradtui.probe.gradients import GradNormCollector, rounded_updates
from gradtui.probe.model import IndexMapping, Lineage, is_same_model, lineage, lineages, replaced_words
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo, ProbeContext, TargetGone
from gradtui.probe.sampling import StepSampler
from gradtui.protocol.commands import Command, SetTrainable, TakeUpFreezes, TrainOnly, VerifyFreeze
from gradtui.protocol.vocabulary import Changed
from gradtui.transport.in_process import CommandQueue


class _Wish(NamedTuple):
    """The requested change of some parameters and modules."""

    command: int
    trainable: bool
    shown: str
    """The path that named them."""
    state: str = "keep"
    """What to do with the optimizer state of the frozen parameters: keep, offload or drop it."""


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
        tree = self._view.tree
        if any(requires_grad.find(path, tree) is not None for path in frozen) or any(map(self._module, holding)):
            self.load(frozen, holding)

    def load(self, frozen: tuple[str, ...], holding: tuple[str, ...]) -> None:
        """Freeze these parameters and hold these modules' statistics at the next boundary."""
        self._loaded, self._missing = (frozen, holding), ((), ())
        self._commands.submit(lambda id_: TakeUpFreezes(id_, frozen, holding))

    def detach(self) -> None:
        """Stop holding statistics and bring back offloaded state. Otherwise the script's objects stay as they are."""
        self.freezes.statistics.modules = []
        self.states.bring_all_back()

    def apply(self, command: Command) -> CommandResult:
        """Apply one of the commands that freeze and unfreeze. Raises `CommandRefused`."""
        if isinstance(command, SetTrainable):
            return self.set_trainable(command)
        if isinstance(command, TrainOnly):
            return self.train_only(command)
        assert isinstance(command, TakeUpFreezes)
        return self.take_up(command)

    def set_trainable(self, command: SetTrainable) -> CommandResult:
        """Freeze or unfreeze the parameters that the command names. Raises `CommandRefused`."""
        path, named = requires_grad.select(command, self._view.tree)
        done = self._set(command, path, named)
        chosen = {index: named[index] for index in done.parameters} if command.trainable else {}
        return self._warned(done, chosen)

    def train_only(self, command: TrainOnly) -> CommandResult:
        """Unfreeze the named parameters and freeze all others. Raises `CommandRefused`, and then changes nothing."""
        tree = self._view.tree
        shown, indices = requires_grad.named(command.selection, tree)
        live = dict(tree.live_parameters())
        wanted = {index: live[index] for index in indices if index in live}
        rest = {index: tensor for index, tensor in live.items() if index not in wanted}
        # Unfreeze first: otherwise the freeze could be refused because it would freeze the last trainable parameter.
        parts = [(True, shown, wanted), (False, f"all but {shown or 'the model'}", rest)]
        try:
            done = in_order([partial(self._set, SetTrainable(command.id, to, on), to, part) for on, to, part in parts])
        except NothingToDo:
            raise NothingToDo(f"{shown or 'the model'} is already all that trains") from None
        size = sum(tree.parameters[index].count for index in wanted)
        counts = f"{'1 tensor' if len(wanted) == 1 else f'{len(wanted)} tensors'}, {size:,} parameters"
        words = norm_statistics.changed_words(done.changed, self._module)
        done = replace(done, text="; ".join((f"trains only {shown or 'the model'}: {counts}", *words)))
        return self._warned(done, wanted)

    def _warned(self, done: CommandResult, unfrozen: dict[int, torch.Tensor]) -> CommandResult:
        """Return the result with a warning where the dtype of the unfrozen parameters is too coarse for their updates."""
        words = rounded_updates.warning(
            unfrozen, self._view.tree, self._view.live_optimizers(), self._norms.latest.by_index
        )
        return replace(done, text=f"{done.text}; {words}") if words else done

    def _set(self, command: SetTrainable, path: str, named: dict[int, torch.Tensor]) -> CommandResult:
        """Freeze or unfreeze those of these parameters that are not yet in the requested state. Raises `CommandRefused`."""
        wish = _Wish(command.id, command.trainable, path, command.state)
        chosen = self._to_be_set(named, wish.trainable)
        modules: list[nn.Module] = []
        if command.statistics:
            modules = self._to_release(chosen) if command.trainable else self._to_hold(set(named), chosen)
        if not chosen and not modules:
            raise NothingToDo(f"{path or 'the model'} is already {'trainable' if command.trainable else 'frozen'}")
        return self._toggle(wish, chosen, modules)

    def take_up(self, command: TakeUpFreezes) -> CommandResult:
        """Freeze what a saved state names, as far as a model has it. Raises `CommandRefused`."""
        tree = self._view.tree
        found = {path: requires_grad.find(path, tree) for path in command.frozen}
        modules = {path: self._module(path) for path in command.holding}
        gone = tuple(path for path, index in found.items() if index is None)
        unheld = tuple(path for path, module in modules.items() if module is None)
        self._loaded, self._missing = ((), ()), (gone, unheld)
        names = gone + unheld
        missing = f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}: not in any model of this run"
        if len(names) == len(found) + len(modules):
            raise CommandRefused(missing)
        indices = dict.fromkeys(index for index in found.values() if index is not None)
        alive = {index: tensor for index in indices if (tensor := tree.parameter_refs[index]()) is not None}
        chosen = {index: tensor for index, tensor in alive.items() if not self._is_frozen(tensor)}
        held = [module for module in modules.values() if module is not None and not self._holds(module)]
        if not chosen and not held:
            # A schedule may have frozen them already.
            raise NothingToDo("what the saved state names is frozen already")
        done = self._toggle(_Wish(command.id, False, "what the saved state names"), chosen, held)
        return replace(done, text=f"{done.text}; left out {missing}") if names else done

    def verify(self, _: VerifyFreeze) -> CommandResult:
        """Compare everything frozen with its values at the freeze, bit by bit. Raises `CommandRefused` if nothing is frozen."""
        step, _by_hand = self._here()
        checked = self.freezes.check()
        steps = step - checked.since_step
        tensors = f"{checked.tensors} tensor{'' if checked.tensors == 1 else 's'}"
        if not checked.moved:
            return CommandResult(
                f"{tensors} held still for {steps} step{'' if steps == 1 else 's'}, by counters and checksums", ()
            )
        listed = [f"{path} ({cause})" for path, cause in zip(checked.moved[:3], checked.causes)]
        more = f" and {len(checked.moved) - 3} more" if len(checked.moved) > 3 else ""
        return CommandResult(f"{len(checked.moved)} of {tensors} moved: {', '.join(listed)}{more}", ())

    def saved(self) -> tuple[list[str], list[str]]:
        """Return the paths of the parameters that commands have frozen, and of the modules whose statistics are held."""
        tree = self._view.tree
        frozen = [
            tree.parameters[index].path if (index := tree.owns(tensor)) is not None else path
            for path, tensor in self.freezes.parameters()
        ]
        holding = [tree.modules[index].path for index, module in tree.live_modules() if self._holds(module)]
        waiting, to_hold = self._loaded
        return sorted({*frozen, *waiting}), sorted({*holding, *to_hold})

    def _to_be_set(self, named: dict[int, torch.Tensor], trainable: bool) -> dict[int, torch.Tensor]:
        held = {id(tensor) for _, tensor in self.freezes.parameters()}
        if trainable:
            return {index: tensor for index, tensor in named.items() if id(tensor) in held or not tensor.requires_grad}
        # A parameter that the script itself switches may be switched off at this moment.
        switched = self._step_sampler.states.switched
        return {
            index: tensor
            for index, tensor in named.items()
            if id(tensor) not in held and (tensor.requires_grad or index in switched)
        }

    def _is_frozen(self, tensor: torch.Tensor) -> bool:
        return self.freezes.holds(tensor) and not tensor.requires_grad

    def _holds(self, module: nn.Module) -> bool:
        return self.freezes.statistics.holds(module)

    def _module(self, path: str) -> nn.Module | None:
        index = requires_grad.find_module(path, self._view.tree)
        return self._view.tree.module_refs[index]() if index is not None else None

    def _to_hold(self, named: set[int], chosen: Iterable[int]) -> list[nn.Module]:
        covered = norm_statistics.covered(self._view.tree, named, frozen=set(chosen))
        return [module for module in covered if not self._holds(module)]

    def _to_release(self, chosen: Iterable[int]) -> list[nn.Module]:
        covered = {id(module) for module in norm_statistics.covered(self._view.tree, trainable=set(chosen))}
        return [module for module in self.freezes.statistics.live() if id(module) not in covered]

    def _toggle(self, wish: _Wish, chosen: dict[int, torch.Tensor], modules: list[nn.Module]) -> CommandResult:
        """Apply the change. `modules` are those whose statistics are held or, in an unfreeze, collected again."""
        tree = self._view.tree
        from_here = {id(tensor) for _, tensor in self.freezes.parameters()}
        own = from_here if wish.trainable else {id(tensor) for tensor in chosen.values() if tensor.requires_grad}
        offloaded = self.states.offloaded(chosen.values())
        optimizers = self._view.live_optimizers()
        owned = membership.owners(optimizers).keys()
        done, treated = CommandResult("", ()), Treated("", None)
        if chosen:
            done, treated = requires_grad.set_trainable(
                chosen,
                tree,
                self._training(),
                self.states,
                trainable=wish.trainable,
                shown=wish.shown,
                state=wish.state,
                step=self._here()[0],
            )
        self._changed(wish, chosen, modules)
        words = norm_statistics.words(modules, held=not wish.trainable)
        text = "; ".join(part for part in (done.text, words) if part)
        toggled = [*zip(map(weakref.ref, chosen.values()), lineages(chosen, tree))]
        off = [weakref.ref(tensor) for tensor in chosen.values() if id(tensor) not in own]
        statistics = [weakref.ref(module) for module in modules]
        # State that was offloaded to host memory is offloaded again on undo.
        back = _Wish(wish.command, not wish.trainable, wish.shown, "offload" if offloaded else "keep")

        def undo() -> CommandResult:
            # The script had frozen these itself, so the decision about them is left to the script.
            left = [tensor for reference in off if (tensor := reference()) is not None]
            if not wish.trainable:
                self.freezes.forget(left)
            done = self._set_back(back, toggled, statistics, treated)
            if wish.trainable:
                self.freezes.leave_to_script(left)
            return done

        positions = membership.positions(optimizers)
        joined = tuple(
            (tree.parameters[index].path, *positions[id(tensor)])
            for index, tensor in chosen.items()
            if id(tensor) not in owned and id(tensor) in positions
        )
        paths = tuple(tree.parameters[index].path for index in chosen)
        return CommandResult(text, tuple(chosen), undo, (Changed(wish.trainable, paths, self._paths(modules), joined),))

    def _paths(self, modules: list[nn.Module]) -> tuple[str, ...]:
        tree = self._view.tree
        wanted = {id(module) for module in modules}
        return tuple(tree.modules[index].path for index, module in tree.live_modules() if id(module) in wanted)

    def _set_back(
        self,
        wish: _Wish,
        toggled: list[tuple[weakref.ref[torch.Tensor], Lineage]],
        statistics: list[weakref.ref[nn.Module]],
        treated: Treated,
    ) -> CommandResult:
        """Freeze or unfreeze exactly these parameters, except those that are gone, in another model, or changed since."""
        tree = self._view.tree
        living = [(tensor, above) for reference, above in toggled if (tensor := reference()) is not None]
        listed = [(index, tensor, above) for tensor, above in living if (index := tree.owns(tensor)) is not None]
        known = {index: tensor for index, tensor, above in listed if is_same_model(above, lineage(index, tree))}
        if listed and not known:
            raise TargetGone(replaced_words(listed[0][2], lineage(listed[0][0], tree)))
        chosen = {
            index: tensor
            for index, tensor in known.items()
            if (self.freezes.holds(tensor) if wish.trainable else tensor.requires_grad)
        }
        living_modules = (module for reference in statistics if (module := reference()) is not None)
        modules = [module for module in living_modules if self._holds(module) is wish.trainable]
        if not chosen and not modules:
            raise TargetGone("nothing of it is left as it was")
        if treated.take_back is None:
            return self._toggle(wish, chosen, modules)
        treated.take_back()
        done = self._toggle(wish, chosen, modules)
        return replace(done, text=f"{done.text}; the optimizer's state is what it was")

    def _training(self) -> Training:
        step, by_hand = self._here()
        # A parameter that has had a gradient since is no longer untried.
        self._untried -= self._norms.latest.by_index.keys()
        return Training(
            self._view.optimizers_in_use(),
            scaled=self._norms.is_scaled,
            unreached=self._step_sampler.states.unreached(),
            untried=self._untried,
            by_hand=by_hand and step > 0,
            in_backward=self._view.steps_in_backward,
        )

    def _changed(self, wish: _Wish, chosen: dict[int, torch.Tensor], modules: list[nn.Module]) -> None:
        step, _ = self._here()
        indices = set(chosen)
        if wish.trainable:
            self.freezes.forget(chosen.values(), modules)
            self._untried |= indices - self._frozen - self._step_sampler.states.flowing()
        else:
            self._frozen |= indices - self._untried - self._step_sampler.states.unreached()
            named = {self._view.tree.parameters[index].path: tensor for index, tensor in chosen.items()}
            self.freezes.add(wish.command, step, named, modules)
