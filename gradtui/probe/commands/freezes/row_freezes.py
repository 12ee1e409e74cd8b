"""Freeze and unfreeze rows of a parameter on command. Training thread only.

Rows are frozen in a layer of their own: a parameter that is frozen as a whole and unfrozen by undo trains the rows that it
trained before. A command that unfreezes the parameter releases its rows too.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial

import torch

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.freezes import preconditions
from gradtui.probe.commands.freezes.change import KnownTraining
from gradtui.probe.commands.freezes.trainability import TrainabilityController
from gradtui.probe.commands.selections import select
from gradtui.probe.commands.undo import in_order
from gradtui.probe.commands.wrappers import is_sharded
from gradtui.probe.frozen import VERIFY_STEPS, FrozenRows, RowKeeper, objection_to_rows
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo, TargetGone
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import is_wrapper
from gradtui.protocol.commands import SetRowsTrainable, SetTrainable, TrainOnly
from gradtui.protocol.events import FreezeVerified, FrozenRowsChanged
from gradtui.protocol.freezes import RowsInForce
from gradtui.run.state.tree.row_ranges import BadRows, Ranges, count, joined, others, ranges_of, text_of, without
from gradtui.run.text import refusals
from gradtui.run.text.units import listed, plural, size_text

_CAUSE = "written by the script outside of its optimizers' steps"
_SHOWN = 8
"""Ranges that an answer and a viewer name."""


class RowFreezes:
    """The rows that commands have frozen."""

    def __init__(
        self, context: ProbeContext, trainability: TrainabilityController, training: KnownTraining, crossing: Crossing
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._trainability, self._training, self._crossing = trainability, training, crossing
        self._keeper = RowKeeper(context.hooks.guard)
        self._is_reported = True
        self.frozen = self._keeper.frozen
        """The same list for the whole run."""
        self.watch = self._keeper.watch
        """Holds frozen rows in the steps of an optimizer too. Called before a step of an optimizer that may be new."""

    @property
    def is_watching(self) -> bool:
        """Whether rows were frozen so recently that every boundary is crossed."""
        return any(rows.is_young for rows in self.frozen)

    @property
    def wants_boundary(self) -> bool:
        """Whether this boundary must be crossed for the rows."""
        return not self._is_reported or self.is_watching

    def tree_changed(self) -> None:
        """Emit the rows again at the next boundary, since parameters have new indexes."""
        self._is_reported = not self.frozen

    def detach(self) -> None:
        """Let all rows train again: the script's objects keep nothing of gradtui."""
        for rows in [*self.frozen]:
            self._keeper.remove(rows)

    def set(self, command: SetRowsTrainable) -> CommandResult:
        """Freeze or unfreeze rows. Raises `CommandRefused`, and then nothing has changed."""
        index, tensor, ranges = self._named(command)
        rows, before = tensor.shape[0], self._ranges(tensor)
        path = self._view.tree.parameters[index].path
        if not command.trainable:
            self._check(index, tensor, joined([*before, *ranges]))
            return self._put(
                command, path, tensor, joined([*before, *ranges]), f"froze rows {_shown(ranges)} of {path}"
            )
        done = f"unfroze rows {_shown(ranges)} of {path}"
        if tensor.requires_grad:
            if not before:
                raise NothingToDo(refusals.already(path, "trainable"))
            return self._put(command, path, tensor, without(before, ranges, rows), done)
        # The others are held before the parameter trains: no step comes between.
        self._check(index, tensor, others(ranges, rows), is_frozen=True)
        unfreeze = partial(self._trainability.set_trainable, SetTrainable(command.id, path, True))
        return in_order([unfreeze, partial(self._put, command, path, tensor, others(ranges, rows), done)])

    def refuse(self, command: SetRowsTrainable) -> None:
        """Raise `CommandRefused` if the command would be refused, as far as that is known without a change."""
        index, tensor, ranges = self._named(command)
        if not command.trainable:
            self._check(index, tensor, joined([*self._ranges(tensor), *ranges]))
        elif not tensor.requires_grad:
            self._check(index, tensor, others(ranges, tensor.shape[0]), is_frozen=True)
            path = self._view.tree.parameters[index].path
            self._trainability.refuse(SetTrainable(command.id, path, True))

    def set_trainable(self, command: SetTrainable) -> CommandResult:
        """Freeze or unfreeze whole parameters; an unfreeze also releases their rows. Raises `CommandRefused`."""
        change = partial(self._trainability.set_trainable, command)
        if not command.trainable or command.restore:
            return change()
        return in_order([change, partial(self._release, select(command.path, self._view.tree)[1].values())])

    def train_only(self, command: TrainOnly) -> CommandResult:
        """Train the named parameters alone, and all of their rows. Raises `CommandRefused`."""
        change = partial(self._trainability.train_only, command)
        named = select(command.selection, self._view.tree)[1].values()
        return in_order([change, partial(self._release, named)])

    def _named(self, command: SetRowsTrainable) -> tuple[int, torch.Tensor, Ranges]:
        """Return the parameter of a command, with its index, and the rows. Raises `CommandRefused`."""
        path, named = select(command.path, self._view.tree)
        infos = self._view.tree.parameters
        if len(named) != 1:
            first = infos[min(named)].path
            raise CommandRefused(refusals.rows_of_one(path or "the model", plural(len(named), "parameter"), first))
        ((index, tensor),) = named.items()
        preconditions.refuse_special(named, self._view.tree)
        if not tensor.dim():
            raise CommandRefused(refusals.no_rows(infos[index].path))
        try:
            return index, tensor, ranges_of(command.rows, tensor.shape[0])
        except BadRows as bad:
            raise CommandRefused(str(bad)) from None

    def _check(self, index: int, tensor: torch.Tensor, frozen: Ranges, *, is_frozen: bool = False) -> None:
        """Refuse to freeze rows where they could not be held. `is_frozen`: the parameter is about to be unfrozen."""
        path, training = self._view.tree.parameters[index].path, self._training.now()
        if frozen == self._ranges(tensor) and not is_frozen:
            raise NothingToDo(refusals.already(f"that of {path}", "frozen"))
        if is_sharded(self._view.tree) or hasattr(tensor, "placements"):
            raise CommandRefused(refusals.ROWS_ARE_SHARDED)
        if is_wrapper(tensor) or tensor.layout is not torch.strided:
            raise CommandRefused(refusals.rows_are_wrapped(path))
        if not (tensor.requires_grad or is_frozen):
            raise CommandRefused(refusals.ROWS_OF_FROZEN)
        if count(frozen) == tensor.shape[0]:
            raise CommandRefused(refusals.rows_are_all(tensor.shape[0], path))
        if training.by_hand:
            raise CommandRefused(refusals.ROWS_BY_SCRIPT)
        self._refuse_optimizers(tensor)

    def _refuse_optimizers(self, tensor: torch.Tensor) -> None:
        """Refuse a parameter of an optimizer that cannot hold rows."""
        for optimizer in self._view.live_optimizers():
            owns = any(each is tensor for each in membership.parameters(optimizer))
            if owns and (reason := objection_to_rows(optimizer, tensor)) is not None:
                raise CommandRefused(reason)

    def _put(
        self, command: SetRowsTrainable, path: str, tensor: torch.Tensor, ranges: Ranges, done: str
    ) -> CommandResult:
        """Hold exactly these rows of a parameter, and say so. Raises `CommandRefused`."""
        if ranges:
            # An unfreeze may have given it to another optimizer.
            self._refuse_optimizers(tensor)
        before = self._ranges(tensor)
        copies = self._hold(path, tensor, ranges, command.id)
        rows, frozen = tensor.shape[0], count(ranges)
        words = (
            f"{done}: it trains {rows - frozen:,} of {rows:,} rows"
            if ranges
            else f"{done}: it trains all {rows:,} rows"
        )
        if ranges:
            words += f"; each step copies {size_text(copies[0])} of frozen rows"
            words += f" and {size_text(copies[1])} of their state" if copies[1] else ", and their state"
        undo = partial(self._take_back, path, weakref.ref(tensor), before, command.id)
        return CommandResult(words, self._view.tree.listed([tensor]), undo, is_measured=True)

    def _hold(self, path: str, tensor: torch.Tensor, ranges: Ranges, command: int) -> tuple[int, int]:
        """Hold exactly these rows of a parameter. Return the bytes of the copies of a step: of the rows and of their state."""
        known = self._of(tensor)
        if known is not None:
            self._keeper.remove(known)
        self._is_reported = False
        if not ranges:
            return 0, 0
        optimizers = self._view.live_optimizers()
        rows = FrozenRows(path, tensor, ranges, command, self._crossing.step)
        self._keeper.add(rows, optimizers)
        rows.note(optimizers)
        own, *state = (value.nbytes * count(ranges) // tensor.shape[0] for _, value in rows.parts(optimizers))
        return own, sum(state)

    def _release(self, tensors: Iterable[torch.Tensor]) -> CommandResult:
        """Let all rows of these parameters train. Raises `NothingToDo` if none of them has frozen rows."""
        held = [(rows, tensor) for tensor in tensors if (rows := self._of(tensor)) is not None]
        if not held:
            raise NothingToDo(refusals.already("every row", "trainable"))
        undos = [
            partial(self._take_back, rows.path, weakref.ref(tensor), rows.rows.ranges, rows.command)
            for rows, tensor in held
        ]
        for rows, tensor in held:
            self._hold(rows.path, tensor, (), rows.command)
        names = listed([rows.path for rows, _ in held])
        indices = self._view.tree.listed([tensor for _, tensor in held])
        return CommandResult(f"all rows of {names} train", indices, partial(in_order, undos), is_measured=True)

    def _take_back(
        self, path: str, reference: weakref.ref[torch.Tensor], ranges: Ranges, command: int
    ) -> CommandResult:
        """Hold the rows that were held before a command. Raises `TargetGone`."""
        tensor = reference()
        index = self._view.tree.owns(tensor) if tensor is not None else None
        if tensor is None or index is None:
            raise TargetGone(refusals.is_gone(path))
        self._hold(path, tensor, ranges, command)
        rows = tensor.shape[0]
        words = (
            f"trains {rows - count(ranges):,} of {rows:,} rows again" if ranges else f"trains all {rows:,} rows again"
        )
        return CommandResult(f"{path} {words}", (index,), is_measured=True)

    def _of(self, tensor: torch.Tensor) -> FrozenRows | None:
        return next((rows for rows in self.frozen if rows.tensor() is tensor), None)

    def _ranges(self, tensor: torch.Tensor) -> Ranges:
        rows = self._of(tensor)
        return rows.rows.ranges if rows is not None else ()

    def returned(self, kept: int, step: int) -> None:
        """Verify rows frozen later from `step` on: the run has its values of step `kept` again."""
        for rows in self.frozen:
            if rows.since_step > kept:
                rows.begin_again(step, self._view.live_optimizers())

    def at_boundary(self, step: int) -> None:
        """Verify what is due, and forget parameters that no longer exist."""
        for rows in [*self.frozen]:
            if rows.tensor() is None:
                self._keeper.remove(rows)
                self._is_reported = False
            elif rows.is_young and step > rows.since_step:
                self._verify(rows, step)

    def _verify(self, rows: FrozenRows, step: int) -> None:
        optimizers = self._view.live_optimizers()
        # An optimizer makes its state in its first step.
        rows.note(optimizers)
        if step - rows.since_step < VERIFY_STEPS:
            return
        # Cleared before the comparison: an exception in it must occur only once.
        rows.is_young = False
        moved = rows.moved(optimizers)
        rows.is_young = moved is None
        if moved is not None:
            self._emit(
                FreezeVerified(
                    self._clock.at(), step, rows.command, 1, step - rows.since_step, tuple(moved),
                    (_CAUSE,) * len(moved), rows=rows.rows.count,
                )
            )  # fmt: skip

    def verify(self, step: int) -> list[str]:
        """Compare all frozen rows with their bits at the freeze, and say the result of each. Waits for the device."""
        optimizers, words = self._view.live_optimizers(), []
        for rows in self.frozen:
            moved = rows.moved(optimizers, waits=True)
            shown, steps = f"{plural(rows.rows.count, 'row')} of {rows.path}", plural(step - rows.since_step, "step")
            kept = f"{shown} and their optimizer state unchanged bit for bit for {steps}"
            words.append(f"of {shown} moved: {listed(moved)} ({_CAUSE})" if moved else kept)
        return words

    def saved(self) -> list[str]:
        """Return the path and the frozen rows of each parameter, as `TakeUpFreezes` has them."""
        ranges = [(rows.path, rows.rows.ranges) for rows in self.frozen if rows.tensor() is not None]
        return [f"{path} {text_of(found, len(found))}" for path, found in ranges]

    def report(self, step: int) -> None:
        """Emit the rows in force if they have changed."""
        if self._is_reported:
            return
        self._is_reported = True
        tree = self._view.tree
        held = [(rows, tensor) for rows in self.frozen if (tensor := rows.tensor()) is not None]
        found = [
            RowsInForce(index, text_of(rows.rows.ranges, _SHOWN), rows.rows.count, tensor.shape[0])
            for rows, tensor in held
            if (index := tree.owns(tensor)) is not None
        ]
        self._emit(FrozenRowsChanged(self._clock.at(), step, tuple(sorted(found, key=lambda each: each.parameter))))


def _shown(ranges: Ranges) -> str:
    return text_of(ranges, _SHOWN)
