"""Keep states of the run on command, before each change of the user, and return to them. Training thread only.

A return first undoes what commands have changed since the state was kept, newest first, as the user would. Then it writes all
values back into the same objects, and compares each of them with the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from torch import nn

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.preconditions import refuse_sharded
from gradtui.probe.commands.undo import UndoStack
from gradtui.probe.kept_states import IncompleteCopyError, KeptState, KeptStates, RunCopy, size_of
from gradtui.probe.runtime import CommandRefused, CommandResult, ranks
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.commands import Command, ForgetState, KeepState, ReturnToState, Undo
from gradtui.protocol.events import ReturnedToState, StateForgotten, StateKept
from gradtui.run.state.tries import BY_TRY
from gradtui.run.text import command_text, duration_text, listed, plural, refusals, size_text

_MAX_S = 0.3
"""An automatic copy takes at most this many seconds, by the speed of earlier copies."""
_TENSOR_S = 1e-4
"""What a tensor takes however small it is, with its gradient and its optimizer state."""
_SHARE = 0.1
"""An automatic copy takes at most this share of the free host memory."""
_NAMED = 4
_BYTES_PER_S = 1e9
"""The speed of a copy before one was measured: less than any host's memory has."""


class StateKeeping:
    """Handles `KeepState`, `ReturnToState` and `ForgetState`.

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
        self.states = KeptStates()
        self._speed = _BYTES_PER_S

    def keep(self, command: KeepState) -> CommandResult:
        """Keep the state of the run now. Raises `CommandRefused`."""
        began = perf_counter()
        kept = self._keep(command.name, "command", automatic=False)
        took = f"{size_text(kept.nbytes)} in host memory, in {duration_text(perf_counter() - began)}"
        return CommandResult(f"kept step {kept.step:,} as state {kept.number}: {took}", ())

    def keep_for_try(self, name: str) -> KeptState:
        """Keep a state of the run that a try returns to. Raises `CommandRefused`."""
        return self._keep(name, BY_TRY, automatic=True)

    def size(self) -> int:
        """Return about how many bytes a copy of the run takes now."""
        return size_of(self._models(), self._view.live_optimizers())

    def before_change(self) -> None:
        """Keep the state before the user changes the run, if a copy is small and fast, and nothing is in the way."""
        if ranks.world_size() > 1 or self._hooks.is_off("kept states"):
            # Each rank would decide by its own speed, and the numbers of states must be those of all ranks.
            return
        newest = self.states.of_step(self._crossing.step)
        if newest is not None and newest.changes == self._undo.ids:
            return
        tree = self._view.tree
        if (len(tree.parameters) + len(tree.buffers)) * _TENSOR_S > _MAX_S:
            return
        size = size_of(self._models(), self._view.live_optimizers())
        if size / self._speed > _MAX_S or size > _SHARE / self.states.share * self.states.room:
            return
        # Nobody has asked for this copy: that it fails must not keep the command from being carried out.
        with self._hooks.guarded("kept states"), suppress(CommandRefused):
            self._keep("", "change", automatic=True)

    def refuse(self, command: ReturnToState) -> KeptState:
        """Return the state to return to. Raises `CommandRefused` if it is not kept, or cannot be complete."""
        kept = self.states.numbered(command.state) if command.state else self.states.of_step(command.to_step)
        if kept is None:
            raise CommandRefused(self._not_kept(command_text(command).removeprefix("return to ")))
        if self._undo.ids[: len(kept.changes)] != kept.changes:
            raise CommandRefused(refusals.UNDONE_SINCE)
        if (objection := kept.copy.objection()) is not None:
            raise CommandRefused(objection)
        return kept

    def return_to(self, command: ReturnToState) -> CommandResult:
        """Return to a kept state. Raises `CommandRefused`."""
        kept = self.refuse(command)
        # So that the user can come back from a return.
        self.before_change()
        self.undo_to(kept.changes, command.origin)
        took = self.write_back(kept, command.why)
        what = f"{plural(kept.copy.tensors, 'tensor')} and the optimizers are equal to the bit"
        return CommandResult(f"returned to step {kept.step:,}: {what}, in {duration_text(took)}", ())

    def undo_to(self, changes: Sequence[int], origin: str) -> None:
        """Undo what was changed since these changes were in force, newest first. Raises `CommandRefused`."""
        while len(self._undo.ids) > len(changes):
            refusal = self._carry_out(Undo(0, origin=origin))
            if refusal is not None:
                raise CommandRefused(refusals.not_undone_for_return(refusal))

    def write_back(self, kept: KeptState, why: str) -> float:
        """Write the values of a state into the run, and compare them; return the seconds it took. Raises `CommandRefused`."""
        if (objection := kept.copy.objection()) is not None:
            raise CommandRefused(objection)
        began = perf_counter()
        self.write(kept)
        differing = kept.copy.differing()
        took = perf_counter() - began
        at = self._clock.at(), self._crossing.step
        self._emit(ReturnedToState(*at, kept.number, kept.step, took, tuple(differing), why))
        if differing:
            raise CommandRefused(refusals.not_equal_after_return(kept.step, " and ".join(differing)))
        return took

    def write(self, kept: KeptState) -> None:
        """Write the values of a state into the run."""
        kept.copy.write()
        self._view.joined.set_waiting(kept.waiting)

    def forget(self, command: ForgetState) -> CommandResult:
        """Keep a state no longer. Raises `CommandRefused`."""
        kept = self.states.numbered(command.state)
        if kept is None:
            raise CommandRefused(self._not_kept(f"state {command.state}"))
        self._forget([kept])
        return CommandResult(f"forgot state {kept.number} of step {kept.step:,}: {size_text(kept.nbytes)}", ())

    def _keep(self, name: str, why: str, *, automatic: bool) -> KeptState:
        refuse_sharded(self._view.tree)
        models, optimizers = self._models(), self._view.live_optimizers()
        if not models and not optimizers:
            raise CommandRefused(refusals.NO_MODEL)
        size = size_of(models, optimizers)
        going = self.states.make_room(size, automatic=automatic)
        if going is None:
            raise CommandRefused(refusals.no_room_for_state(size_text(size), size_text(self.states.room)))
        self._forget(going)
        began = perf_counter()
        try:
            copy = RunCopy(models, optimizers, [*self.schedulers(), *self._scalers()])
        except IncompleteCopyError as error:
            raise CommandRefused(refusals.incomplete_state(error)) from None
        took = perf_counter() - began
        if size > 1 << 20:
            self._speed = size / took
        kept = self.states.add(self._crossing.step, copy, self._undo.ids, automatic=automatic)
        kept.waiting = self._view.joined.waiting()
        self._emit(StateKept(self._clock.at(), kept.step, kept.number, why, name, kept.nbytes, took))
        return kept

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
        tree = self._view.tree
        roots = (tree.module_refs[model.root]() for model in tree.models)
        return [root for root in roots if root is not None]
