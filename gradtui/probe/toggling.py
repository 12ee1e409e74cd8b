"""Freezes and unfreezes as commands ask for them, and what becomes of them. Training thread only."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch

from gradtui.probe import interventions
from gradtui.probe import optimizer_membership as membership
from gradtui.probe.applied import Applied, Changed
from gradtui.probe.freeze_watch import VERIFY_STEPS, FreezeWatch
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.norm_reader import NormReader
from gradtui.probe.refusals import AlreadySo, Refused, Training
from gradtui.probe.step_examiner import StepExaminer
from gradtui.probe.together import in_order
from gradtui.protocol.commands import SetTrainable, TrainOnly
from gradtui.protocol.events import FreezeVerified


class Toggling:
    """Sets what is trainable, remembers what a person froze, and verifies that it holds still.

    `here` tells the step at the boundary and whether the script updates its parameters itself, without an optimizer.
    """

    def __init__(
        self,
        view: ModelsInView,
        norms: NormReader,
        examiner: StepExaminer,
        here: Callable[[], tuple[int, bool]],
    ) -> None:
        self._view = view
        self._norms = norms
        self._examiner = examiner
        self._here = here
        self._frozen: set[int] = set()
        """Places of the parameters that a command froze: they did train before, as far as was known."""
        self._untried: set[int] = set()
        """Places of the parameters that a command unfroze although they had not trained in our sight."""
        self.watches: list[FreezeWatch] = []
        """Freezes whose tensors are being watched."""

    def tree_changed(self) -> None:
        """Parameters have other places now."""
        self._frozen.clear()
        self._untried.clear()

    def set_trainable(self, command: SetTrainable) -> Applied:
        """Freeze or unfreeze what the command names. Raises `Refused`."""
        path, named = interventions.select(command, self._view.tree)
        return self._set(command, path, named)

    def train_only(self, command: TrainOnly) -> Applied:
        """Unfreeze what the command names and freeze all the rest. Raises `Refused`, and then neither is done."""
        tree = self._view.tree
        shown, places = interventions.named(command.selection, tree)
        live = dict(tree.live_parameters())
        wanted = {place: live[place] for place in places if place in live}
        rest = {place: tensor for place, tensor in live.items() if place not in wanted}
        # Unfrozen first: what is frozen then is not the last that trains.
        parts = [SetTrainable(command.id, shown, True), SetTrainable(command.id, shown, False)]
        try:
            done = in_order([partial(self._set, part, shown, named) for part, named in zip(parts, (wanted, rest))])
        except AlreadySo:
            raise AlreadySo(f"{shown or 'the model'} is already all that trains") from None
        size = sum(tree.parameters[place].count for place in wanted)
        tensors = "1 tensor" if len(wanted) == 1 else f"{len(wanted)} tensors"
        counts = [f"{'unfroze' if each.trainable else 'froze'} {len(each.paths)}" for each in done.changed]
        text = f"trains only {shown or 'the model'}: {tensors}, {size:,} parameters; {', '.join(counts)}"
        return replace(done, text=text)

    def _set(self, command: SetTrainable, path: str, named: dict[int, torch.Tensor]) -> Applied:
        """Freeze or unfreeze what of these is not yet as the command asks. Raises `Refused`."""
        chosen = {place: tensor for place, tensor in named.items() if tensor.requires_grad is not command.trainable}
        if not chosen:
            raise AlreadySo(f"{path or 'the model'} is already {'trainable' if command.trainable else 'frozen'}")
        return self._toggle(command.id, chosen, trainable=command.trainable, shown=path)

    def _toggle(self, command: int, chosen: dict[int, torch.Tensor], *, trainable: bool, shown: str) -> Applied:
        tree, optimizers = self._view.tree, self._view.live_optimizers()
        owned = membership.owners(optimizers).keys()
        done = interventions.set_trainable(chosen, tree, self._training(), trainable=trainable, shown=shown)
        joined = tuple(
            (tree.parameters[place].path, *where)
            for place in done.parameters
            if id(chosen[place]) not in owned and (where := membership.position(chosen[place], optimizers)) is not None
        )
        self._changed(command, done.parameters, trainable=trainable)
        references = [weakref.ref(chosen[place]) for place in done.parameters]
        return Applied(
            done.text,
            done.parameters,
            lambda: self._set_back(command, references, trainable=not trainable, shown=shown),
            (Changed(trainable, tuple(tree.parameters[place].path for place in done.parameters), (), joined),),
        )

    def _set_back(
        self, command: int, references: list[weakref.ref[torch.Tensor]], *, trainable: bool, shown: str
    ) -> Applied:
        """Freeze or unfreeze exactly these, those that are still there."""
        tree = self._view.tree
        living = [tensor for reference in references if (tensor := reference()) is not None]
        chosen = {place: tensor for tensor in living if (place := tree.owns(tensor)) is not None}
        chosen = {place: tensor for place, tensor in chosen.items() if tensor.requires_grad is not trainable}
        if not chosen:
            raise Refused("nothing of it is left as it was")
        return self._toggle(command, chosen, trainable=trainable, shown=shown)

    def verify(self, at: float, step: int) -> Iterator[FreezeVerified]:
        """Reports on freezes that are old enough."""
        for watch in [watch for watch in self.watches if step - watch.since_step >= VERIFY_STEPS]:
            # Whatever its verdict raises, it raises once.
            self.watches.remove(watch)
            verdict = watch.verdict()
            if verdict is None:
                self.watches.append(watch)
            elif verdict.tensors:
                yield FreezeVerified(at, step, watch.command, verdict.tensors, step - watch.since_step, verdict.moved)

    def _training(self) -> Training:
        step, by_hand = self._here()
        # What has had a gradient since has been tried.
        self._untried -= self._norms.latest.keys()
        return Training(
            self._view.optimizers_in_use(),
            scaled=self._norms.is_scaled,
            unreached=self._examiner.unreached(),
            untried=self._untried,
            by_hand=by_hand and step > 0,
        )

    def _changed(self, command: int, places: tuple[int, ...], *, trainable: bool) -> None:
        step, _ = self._here()
        changed = self._named(places)
        for watch in self.watches:
            watch.forget(changed.values())
        if trainable:
            self._untried |= set(places) - self._frozen
        else:
            self._frozen |= set(places) - self._untried - self._examiner.unreached()
            self.watches.append(FreezeWatch(command, step, changed.items()))

    def _named(self, places: Iterable[int]) -> dict[str, torch.Tensor]:
        tree = self._view.tree
        live = ((tree.parameters[place].path, tree.parameter_refs[place]()) for place in places)
        return {path: tensor for path, tensor in live if tensor is not None}
