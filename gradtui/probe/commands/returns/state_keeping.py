"""Keep states of the run on command, before each change of the user, and return to them. Training thread only.

A return first undoes what commands have changed since the state was kept, newest first, as the user would. Then it writes all
values back into the same objects, and compares each of them with the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.returns.held_by_script import HeldByScript
from gradtui.probe.commands.undo import UndoStack
from gradtui.probe.commands.wrappers import refuse_hidden_state, refuse_sharded
from gradtui.probe.kept_states import (
    MODEL,
    CopyDetails,
    CopyProgress,
    IncompleteCopyError,
    KeptState,
    KeptStates,
    LeftBehind,
    RunCopy,
    items_of,
    not_finite,
    own_tensors,
    size_of,
    tensors_of,
)
from gradtui.probe.runtime import CommandRefused, CommandResult, ranks
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.graph_trees import replays_graphs
from gradtui.protocol import events
from gradtui.protocol.commands import Command, ForgetState, KeepState, RenameState, ReturnToState, Undo
from gradtui.protocol.events import ReturnedToState, StateForgotten, StateKept, StateRenamed
from gradtui.run.state.parts.tries import BY_TRY
from gradtui.run.text import command_text, duration_text, left_text, listed, plural, refusals, size_text
from gradtui.system.free_memory import free_memory

_MAX_S = 0.3
"""An automatic copy takes at most this many seconds, by the speed of earlier copies."""
_TENSOR_S = 1e-4
"""What a tensor takes however small it is, with its gradient and its optimizer state."""
_SHARE = 0.1
"""An automatic copy takes at most this share of the free host memory."""
_NAMED = 4
_LEFT = 100
"""Names of what a return leaves that are passed on."""
_LARGE = 64 << 20
"""Bytes of a copy that may take so long that it says how far it is."""
_PINNED = 256 << 20
"""Bytes of host memory that may be pinned for all kept states."""
_BYTES_PER_S = 1e9
"""The speed of a copy before one was measured: less than any host's memory has."""


class StateKeeping:
    """Handles `KeepState`, `ReturnToState`, `ForgetState` and `RenameState`.

    Args:
        context: the parts of the probe.
        undo: the changes in force.
        crossing: the boundary that is crossed.
        scalers: returns the live gradient scalers.
        carry_out: carries out another command at this boundary and answers it; returns why it was refused.
    """

    def __init__(
        self,
        context: ProbeContext,
        undo: UndoStack,
        crossing: Crossing,
        scalers: Callable[[], Sequence[Any]],
        carry_out: Callable[[Command], CommandRefused | None],
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._undo, self._crossing, self._scalers, self._carry_out = undo, crossing, scalers, carry_out
        self._hooks = context.hooks
        self.schedulers: Callable[[], Sequence[Any]] = tuple
        """Returns the live schedulers."""
        self.written: Callable[[int], None] = lambda _: None
        """Called with the kept step when the values of a state have been written into the run."""
        self.states = KeptStates()
        self._speed = _BYTES_PER_S
        self._held = HeldByScript(context.models, crossing)

    def keep(self, command: KeepState) -> CommandResult:
        """Keep the state of the run now. Raises `CommandRefused`."""
        began = perf_counter()
        self.look_again()
        kept = self._keep(command.name, "command", automatic=False)
        took = f"{size_text(kept.nbytes)} in host memory, in {duration_text(perf_counter() - began)}"
        return CommandResult(f"kept step {kept.step:,} as state {kept.number}: {took}", ())

    def look_again(self) -> None:
        """Search what the script holds of the run before the next state is kept."""
        self._held.look_again()

    def refuse_keep(self, command: KeepState) -> None:
        """Raise `CommandRefused` if the state of the run could not be kept now."""
        size = self.size()
        if not command.file:
            self._room_for(size, automatic=False)

    def keep_for_try(self, name: str) -> KeptState:
        """Keep a state of the run that a try returns to. Raises `CommandRefused`."""
        return self._keep(name, BY_TRY, automatic=True)

    def before_change(self) -> KeptState | None:
        """Keep the state before the user changes the run, if a copy is small and fast, and nothing is in the way; return it."""
        newest = self.states.of_step(self._crossing.step)
        if newest is not None and newest.changes == self._undo.ids:
            return None
        kept = self.keep_by_itself("change")
        return kept if isinstance(kept, KeptState) else None

    def keep_by_itself(self, why: str) -> KeptState | str:
        """Keep the state although nobody has asked for it. Return it, or why it is not kept."""
        # That it fails must not keep anything else from being done at this boundary.
        with self._hooks.guarded("kept states"):
            return self._kept_if_cheap(why)
        return refusals.COPIES_HAVE_FAILED

    def _kept_if_cheap(self, why: str) -> KeptState | str:
        try:
            if (objection := self._objection()) is not None:
                return objection
            objection = self._too_much(size := self.size())
            return objection if objection is not None else self._keep("", why, automatic=True, size=size)
        except CommandRefused as refusal:
            return str(refusal)

    def return_by_itself(self, kept: KeptState, why: str) -> CommandRefused | None:
        """Return to a state although nobody has asked for it, for the reason in words; return why that was refused.

        The random states stay as they are: a script may draw its batches from them.
        """
        return self._carry_out(ReturnToState(0, state=kept.number, why=why, random=False))

    @property
    def step(self) -> int:
        """The executed steps at the boundary that is crossed."""
        return self._crossing.step

    @property
    def changes(self) -> tuple[int, ...]:
        """The ids of the commands whose changes are in force, in their order."""
        return self._undo.ids

    def not_finite(self) -> list[str]:
        """Return which values of the run are not finite now, in words."""
        return not_finite(self._models(), self._view.live_optimizers())

    def costs_too_much(self) -> str | None:
        """Return why a copy that nobody has asked for is not made, in words; None if it is small and fast."""
        try:
            return self._objection() or self._too_much(self.size())
        except CommandRefused as refusal:
            return str(refusal)

    def _objection(self) -> str | None:
        """Return why such a copy is not made, whatever its size."""
        count = ranks.world_size()
        if count > 1:
            # Each rank would decide by its own speed, and the numbers of states must be those of all ranks.
            return refusals.no_copy_on_ranks(count)
        if self.states.is_off:
            return refusals.KEEPS_NONE
        if self._hooks.is_off("kept states"):
            return refusals.COPIES_HAVE_FAILED
        tensors = len(self._view.tree.parameters) + len(self._view.tree.buffers)
        seconds = tensors * _TENSOR_S
        if seconds > _MAX_S:
            return refusals.copy_is_slow(plural(tensors, "tensor"), duration_text(seconds), duration_text(_MAX_S))
        return None

    def _too_much(self, size: int) -> str | None:
        """Return why such a copy of so many bytes is not made."""
        seconds = size / self._speed
        if seconds > _MAX_S:
            return refusals.copy_is_slow(size_text(size), duration_text(seconds), duration_text(_MAX_S))
        free = free_memory() + self.states.nbytes
        room = min(int(_SHARE * free), self.states.room)
        return refusals.copy_is_large(size_text(size), size_text(room)) if size > room else None

    def forget_by_itself(self, kept: KeptState) -> None:
        """Keep a state no longer that nobody has asked for, if it is still kept."""
        if kept in self.states:
            self._forget([kept])

    def refuse(self, command: ReturnToState) -> KeptState:
        """Return the state to return to. Raises `CommandRefused` if it is not kept, or cannot be complete."""
        kept = self.states.numbered(command.state) if command.state else self.states.of_step(command.to_step)
        if kept is None:
            raise CommandRefused(self._not_kept(command_text(command).removeprefix("return to ")))
        if command.to_step < 0 and not command.state and ranks.world_size() > 1 and kept.number != self.states.last:
            # Another rank may have kept one that this one could not keep.
            raise CommandRefused(refusals.NEWEST_NOT_KEPT)
        if replays_graphs():
            raise CommandRefused(refusals.REPLAYS_COMPILED)
        if self._undo.ids[: len(kept.changes)] != kept.changes:
            raise CommandRefused(refusals.UNDONE_SINCE)
        if (objection := self._objection_to(kept)) is not None:
            raise CommandRefused(objection)
        return kept

    def return_to(self, command: ReturnToState) -> CommandResult:
        """Return to a kept state. Raises `CommandRefused`."""
        kept = self.refuse(command)
        if not command.why:
            # So that the user can come back from a return. What a policy returns from is of no use.
            self.before_change()
        self.undo_to(kept.changes, command.origin)
        took, left = self.write_back(kept, command.why, with_random=command.random)
        what = f"{plural(kept.copy.tensors, 'tensor')} and the optimizers are equal to the bit"
        why = f"{command.why}; " if command.why else ""
        return CommandResult(
            f"returned to step {kept.step:,}: {why}{what}, in {duration_text(took)}{left_text(left)}", ()
        )

    def _objection_to(self, kept: KeptState) -> str | None:
        return kept.copy.objection(self._view.live_optimizers(), self._stateful())

    def undo_to(self, changes: Sequence[int], origin: str) -> None:
        """Undo what was changed since these changes were in force, newest first. Raises `CommandRefused`."""
        while len(self._undo.ids) > len(changes):
            refusal = self._carry_out(Undo(0, origin=origin))
            if refusal is not None:
                raise CommandRefused(refusals.not_undone_for_return(refusal))

    def write_back(self, kept: KeptState, why: str, *, with_random: bool = True) -> tuple[float, Sequence[str]]:
        """Write the values of a state into the run, and compare them. Raises `CommandRefused`.

        Return the seconds it took, and what stays as it was although it has changed since.
        """
        if (objection := self._objection_to(kept)) is not None:
            raise CommandRefused(objection)
        began = perf_counter()
        self.write(kept, with_random=with_random)
        differing = kept.copy.differing()
        took = perf_counter() - began
        at = self._clock.at(), self._crossing.step
        left = kept.beside.changed(self._view.tree) if kept.beside is not None and not why else []
        self._emit(ReturnedToState(*at, kept.number, kept.step, took, tuple(differing), why, tuple(left[:_LEFT])))
        if differing:
            raise CommandRefused(refusals.not_equal_after_return(kept.step, " and ".join(differing)))
        return took, left

    def write(self, kept: KeptState, *, with_random: bool = True) -> None:
        """Write the values of a state into the run."""
        kept.copy.write(with_random=with_random)
        self.written(kept.step)
        self._view.joined.set_waiting(kept.waiting)

    def forget(self, command: ForgetState) -> CommandResult:
        """Keep a state no longer. Raises `CommandRefused`."""
        kept = self.numbered(command.state)
        self._forget([kept])
        return CommandResult(f"forgot state {kept.number} of step {kept.step:,}: {size_text(kept.nbytes)}", ())

    def rename(self, command: RenameState) -> CommandResult:
        """Give a state another name. Raises `CommandRefused`."""
        kept = self.numbered(command.state)
        kept.name = command.name.strip()
        self._emit(StateRenamed(self._clock.at(), self._crossing.step, kept.number, kept.name))
        named = f"is named {kept.name}" if kept.name else "has no name"
        return CommandResult(f"state {kept.number} of step {kept.step:,} {named}", ())

    def numbered(self, number: int) -> KeptState:
        """Return the state with a number. Raises `CommandRefused` if it is not kept."""
        kept = self.states.numbered(number)
        if kept is None:
            raise CommandRefused(self._not_kept(f"state {number}"))
        return kept

    def size(self) -> int:
        """Return about how many bytes a copy takes. Raises `CommandRefused` if none can be complete."""
        refuse_sharded(self._view.tree)
        refuse_hidden_state(self._view.tree)
        models, optimizers = self._models(), self._view.live_optimizers()
        if not models and not optimizers:
            raise CommandRefused(refusals.NO_MODEL)
        if (unknown := self._held.unknown) is not None:
            name, kind = unknown
            raise CommandRefused(refusals.state_is_its_own(name, kind))
        try:
            return size_of(models, optimizers) + self._held.nbytes
        except IncompleteCopyError as error:
            raise CommandRefused(refusals.incomplete_state(error)) from None

    def copied(self, size: int) -> RunCopy:
        """Copy the run now, about `size` bytes, and say how far that is if it takes long. Raises `CommandRefused`."""
        began = perf_counter()
        listed, averages = self._named_models()
        models = [*listed, *averages]
        optimizers, stateful = self._view.live_optimizers(), self._stateful()
        with self.progress("keep", size) as progress:
            try:
                tell = progress.add if size > _LARGE else None
                pinnable = _PINNED - sum(each.copy.pinned for each in self.states)
                names = [name for name, _ in models]
                details = CopyDetails(names, tell, len(averages), pinnable, self._held.containers)
                copy = RunCopy([each for _, each in models], optimizers, stateful, details)
            except IncompleteCopyError as error:
                raise CommandRefused(refusals.incomplete_state(error)) from None
        if size > 1 << 20:
            self._speed = size / (perf_counter() - began)
        return copy

    @contextmanager
    def progress(self, what: str, size: int) -> Iterator[CopyProgress]:
        """Emit how far a copy of `size` bytes is, if it takes long."""

        def tell(done: int, *, is_over: bool = False) -> None:
            at = self._clock.at(), self._crossing.step
            self._emit(events.CopyProgress(*at, min(done, size), size, what, is_over))

        progress = CopyProgress(tell)
        try:
            yield progress
        finally:
            if progress.has_told:
                tell(progress.done, is_over=True)

    def _keep(self, name: str, why: str, *, automatic: bool, size: int | None = None) -> KeptState:
        size = self.size() if size is None else size
        self._forget(self._room_for(size, automatic=automatic))
        number = self.states.take_number()
        began = perf_counter()
        copy = self.copied(size)
        took = perf_counter() - began
        kept = self.states.add(self._crossing.step, copy, self._undo.ids, automatic=automatic, number=number)
        kept.name = name
        if why in ("command", "change"):
            kept.beside = self.beside()
        kept.waiting = self._view.joined.waiting()
        self._emit(StateKept(self._clock.at(), kept.step, kept.number, why, name, kept.nbytes, took))
        return kept

    def beside(self) -> LeftBehind:
        """Return what the script holds now that a return does not bring back."""
        return LeftBehind(self._view.tree, self._own_tensors())

    def _own_tensors(self) -> Iterator[torch.Tensor]:
        """Yield what a copy has."""
        optimizers = self._view.live_optimizers()
        yield from own_tensors(tensors_of(self._models(), optimizers), optimizers)
        for _, container in self._held.containers():
            yield from (each for _, each in items_of(container))

    def _room_for(self, size: int, *, automatic: bool) -> list[KeptState]:
        """Return the states that must go for another one. Raises `CommandRefused` if it does not fit even then."""
        if self.states.is_off:
            raise CommandRefused(refusals.KEEPS_NONE)
        if replays_graphs():
            raise CommandRefused(refusals.REPLAYS_COMPILED)
        going = self.states.make_room(size, automatic=automatic)
        if going is None:
            raise CommandRefused(refusals.no_room_for_state(size_text(size), size_text(self.states.room)))
        return going

    def _stateful(self) -> list[Any]:
        return [*self.schedulers(), *self._scalers()]

    def _not_kept(self, which: str) -> str:
        known = [f"{each.step:,} (state {each.number})" for each in self.states]
        return refusals.not_kept(which, listed(known, _NAMED)) if known else refusals.NOTHING_KEPT

    def _forget(self, going: list[KeptState]) -> None:
        for each in going:
            self.states.remove(each)
        if going:
            numbers = tuple(each.number for each in going)
            self._emit(StateForgotten(self._clock.at(), self._crossing.step, numbers))

    def _models(self) -> list[nn.Module]:
        return [each for named in self._named_models() for _, each in named]

    def _named_models(self) -> tuple[list[tuple[str, nn.Module]], list[tuple[str, nn.Module]]]:
        """Return the listed models, of which a single one has no name, and copies of them that the script holds."""
        tree = self._view.tree
        listed = [(model.name, root) for model in tree.models if (root := tree.module_refs[model.root]()) is not None]
        named = [(MODEL, root) for _, root in listed] if len(listed) == 1 else listed
        roots = {id(root) for _, root in listed}
        return named, [(name, each) for name, each in self._held.averages() if id(each) not in roots]
