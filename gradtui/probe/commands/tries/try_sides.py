"""The sides of a try: the state before each of them, its change, and the state with which the run continues.

Training thread only. Each side begins, and the run continues, where the script requests the batch of a new step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

import torch
from torch import nn

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.commands.tries.one_try import Around, OneTry, notes_of
from gradtui.probe.kept_states import KeptState
from gradtui.probe.runtime import CommandRefused, ranks
from gradtui.probe.steps import ProbeContext
from gradtui.probe.trials import FailedCalls
from gradtui.protocol.events import ChangeTried, TrySideBegan
from gradtui.run.state.parts.tries import BY_TRY, ORIGIN, chosen, commands_of
from gradtui.run.text.tries import NOT_BEGUN, asks_text, failure_text, tried_lines, tried_text

_FIRST_ID = -(1 << 32)
"""Ids of the changes of tries go down from here. Those of schedules are negative too, and small."""


class TrySides:
    """Carries a try from one side to the next, and ends it.

    Args:
        context: the parts of the probe.
        keeping: keeps the states that a try returns to.
        crossing: the boundary that is crossed.
        around: carries out the changes, and holds the run.
        close: ends the try; the run continues with a side, without a result for a reason, or with the result in words.
    """

    def __init__(
        self,
        context: ProbeContext,
        keeping: StateKeeping,
        crossing: Crossing,
        around: Around,
        close: Callable[..., None],
    ) -> None:
        self._emit, self._clock, self._counter, self._view = (
            context.emit,
            context.clock,
            context.counter,
            context.models,
        )
        self._keeping, self._crossing, self._around, self._close = keeping, crossing, around, close
        self.has_changed = False
        """Something was frozen or undone since the freezes were reported last."""
        self._present: OneTry | None = None
        """The try whose side may be ended by an exception."""
        self.failing = FailedCalls(context.hooks, self._failed, self._trained, self._path_of)
        self._id = _FIRST_ID

    def next_side(self, current: OneTry) -> None:
        """End the present side, and begin the next one, or end the try."""
        self.carry_on(current, lambda: self._end_side(current))

    def carry_on(self, current: OneTry, then: Callable[[], None]) -> None:
        """Do what follows between two steps. A refusal ends the try."""
        self._crossing.begin(self._counter.steps)
        self.has_changed = True
        try:
            then()
        except CommandRefused as refusal:
            self._close(current.at, str(refusal))

    def _end_side(self, current: OneTry) -> None:
        side, why = current.side, current.abandoned
        if current.beside is not None and current.at == 1:
            current.goes_on, current.beside = current.beside.changed(self._view.tree, numbers=False), None
        if current.at == 0 and (why or side.ended) and not current.has_moved:
            # Nothing was changed.
            self._close(0, why or f"without a change {side.ended}")
            return
        if not why and current.at not in current.ends:
            self.keep_end(current)
        if not why and current.at + 1 < len(current.sides):
            self.holding(current, 0, is_held=False, then=lambda: self._begin_next(current))
        else:
            self.holding(
                current, -1, is_held=not (why or side.ended or current.has_moved), then=lambda: self.finish(current)
            )

    def holding(self, current: OneTry, record: int, *, is_held: bool, then: Callable[[], None]) -> None:
        """Do that once the script holds this recorded batch: at once where it fetches none ahead of its step."""
        if is_held or current.batches is None or not current.batches.ahead:
            then()
        else:
            current.gives, current.then = record, then

    def finish(self, current: OneTry) -> None:
        """End the try after its last side, or without a result."""
        if current.abandoned:
            self._continue_with(current, 0)
            self._close(0, current.abandoned)
        else:
            self._conclude(current)

    def keep_end(self, current: OneTry) -> None:
        """Keep how the side has ended, if the run may continue from there. Raises `CommandRefused`."""
        is_last, asked = current.at + 1 == len(current.sides), current.command.keep
        is_there = is_last and not current.aside
        if current.at == 0 or not (is_there or current.side.ended or asked == "none"):
            current.ends[current.at] = self._keeping.keep_for_try(f"end of a try: {current.side.change or 'unchanged'}")

    def _begin_next(self, current: OneTry) -> None:
        """Begin the next side whose change is not refused; if there is none, end the try."""
        batches, start = current.batches, current.start
        if batches is None or start is None:
            return
        while current.at + 1 < len(current.sides):
            current.at += 1
            self._return_to(start)
            refusal = self._apply(current.side.change)
            if refusal is None:
                batches.begin_again()
                self.begin(current)
                return
            current.side.ended = f"refused: {refusal}"
        self.holding(current, -1, is_held=False, then=lambda: self.finish(current))

    def begin(self, current: OneTry) -> None:
        """Begin the present side: the state before it, and its change, are in place."""
        self.failing.side_ends()
        current.has_moved = False
        if current.at == 1:
            current.beside = self._keeping.beside()
        if current.at:
            self.watch(current)
        about = current.command.id, current.at, current.side.change, len(current.sides), current.command.steps
        self._emit(TrySideBegan(self._clock.at(), self._counter.steps, *about))

    def watch(self, current: OneTry, *, hides_gradients: bool = False) -> None:
        """Let an exception end what the run does now, and not the script."""
        self._present = current
        self.failing.side_begins(self._view.live_optimizers())
        self.failing.hides_gradients = hides_gradients

    def _return_to(self, start: KeptState) -> None:
        """Return to the state before the try. Raises `CommandRefused`."""
        self._keeping.undo_to(start.changes, ORIGIN)
        self._keeping.write_back(start, BY_TRY)

    def _apply(self, change: str) -> CommandRefused | None:
        for command in commands_of(change):
            self._id -= 1
            refusal = self._around.carry_out(replace(command, id=self._id, origin=ORIGIN))
            if refusal is not None:
                return refusal
        return None

    def _continue_with(self, current: OneTry, kept: int) -> None:
        """Put the end of a side in place. Raises `CommandRefused`."""
        is_there = kept == current.at and not current.has_moved
        if is_there and not current.side.ended and not current.abandoned:
            return
        end = current.ends.get(kept)
        if end is None or current.start is None:
            # The first side has not ended: nothing was changed.
            return
        self._keeping.undo_to(current.start.changes, ORIGIN)
        if kept:
            # The change is made where its side began, so that what it froze is what it was then.
            self._keeping.write(current.start)
            if (refusal := self._apply(current.sides[kept].change)) is not None:
                raise refusal
        self._keeping.write_back(end, BY_TRY)

    def _conclude(self, current: OneTry) -> None:
        keep = current.command.keep
        asks = keep == "ask" and ranks.objection_to_hold() is None
        tried = self._measured(current, asks=asks)
        if asks:
            current.asks = True
            self._around.hold(self._counter.steps, asks_text(tried))
        kept = current.choice if asks else chosen(keep, tried.sides)
        self._continue_with(current, kept)
        self._close(kept, "", tried_text(tried, kept))

    def _measured(self, current: OneTry, *, asks: bool) -> ChangeTried:
        """Emit what was measured."""
        sides = tuple(each.figures() for each in current.sides)
        notes = notes_of(current)
        tried = ChangeTried(self._clock.at(), self._counter.steps, current.command.id, sides, notes, asks)
        current.measured = tried
        self._emit(tried)
        return tried

    def abandon(self, current: OneTry, why: str, *, at_once: bool) -> None:
        """End the try without a result, at once or at the next request between two steps."""
        current.abandoned = why
        if at_once:
            self.next_side(current)

    def over(self) -> None:
        """The try is over: exceptions reach the script."""
        self._present = None
        self.failing.side_ends()

    def cut_short(self, current: OneTry) -> list[str]:
        """Return what was measured until the script ended, in words; empty if that is nothing."""
        if not current.at or current.abandoned:
            return []
        tried = current.measured
        if tried is None:
            if not current.side.ended and not current.aside_steps:
                current.side.fail(f"the run ended in step {current.side.places:,}")
            for each in current.sides[current.at + 1 :]:
                each.ended = NOT_BEGUN
            tried = self._measured(current, asks=False)
        return tried_lines(tried)

    # An exception of the present side

    def _failed(self, why: str) -> None:
        """End the present side within its step, and return to the state before the try."""
        current = self._present
        if current is None or current.start is None:
            return
        if current.aside_steps:
            current.aside_steps, current.aside_why = 1, why
            for each in current.sides:
                each.forget_aside()
        elif current.gives is None:
            current.side.fail(failure_text(why, current.side.places))
        start = current.start
        self.carry_on(current, lambda: self._return_to(start))

    def _trained(self) -> Iterable[torch.Tensor]:
        listed = (tensor for _, tensor in self._view.tree.live_parameters())
        groups = chain.from_iterable(each.param_groups for each in self._view.live_optimizers())
        return chain(listed, chain.from_iterable(each["params"] for each in groups))

    def _path_of(self, module: nn.Module) -> str:
        tree = self._view.tree
        index = tree.index_of(module)
        return tree.modules[index].path if index >= 0 else type(module).__name__
