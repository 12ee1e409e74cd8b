"""Try changes on the batches of the script's own DataLoader. Training thread only.

A try begins where the script requests the batch of a new step, and so does each of its sides: between two requests lies all
that an iteration of the script's loop does. So the state that is kept there has nothing of a batch in it, and the run goes on
from the end of any side as if only that side had run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.kept_states import StateKeeping
from gradtui.probe.kept_states import KeptState
from gradtui.probe.runtime import AnsweredLater, CommandRefused, CommandResult, ranks
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.probe.trials import Again, BatchesGivenAgain, NotTheSameError, Side, between_epochs, rates_differ, rates_of
from gradtui.protocol.commands import Command, EndTry, TryChange
from gradtui.protocol.events import ChangeTried, Event, TryEnded, TrySideBegan
from gradtui.run.state.tries import BY_TRY, ORIGIN, chosen, commands_of
from gradtui.run.text import refusals, size_text
from gradtui.run.text.tries import asks_text, tried_text

_FIRST_ID = -(1 << 32)
"""Ids of the changes of tries go down from here. Those of schedules are negative too, and small."""
_PATIENCE = 50
"""Steps after which a try that could not begin is refused."""


@dataclass(eq=False)
class _Try:
    command: TryChange
    asked_at: int
    sides: list[Side]
    at: int = 0
    """The index of the present side."""
    batches: BatchesGivenAgain | None = None
    """None before it has begun."""
    start: KeptState | None = None
    ends: dict[int, KeptState] = field(default_factory=dict)
    """How the sides ended, by their index."""
    requested_at: int = -1
    """The number of ended steps when the newest batch was requested that was the first one of its step."""
    is_first: bool = False
    """The batch that is loaded now is the first one of its step."""
    between: tuple[object, ...] = ()
    """What the run was at the end of the epoch."""
    abandoned: str = ""
    """Why it is to end without a result."""
    has_other_rates: bool = False
    asks: bool = False
    """The run is held until the user has chosen."""
    choice: int = 0
    """The side that the user has chosen."""

    @property
    def side(self) -> Side:
        """The present side."""
        return self.sides[self.at]


@dataclass
class Around:
    """What a try needs of what carries out commands."""

    carry_out: Callable[[Command], CommandRefused | None]
    """Carries out another command at this boundary and answers it; returns why it was refused."""
    objection: Callable[[Command], str | None]
    """Returns why a command would be refused now."""
    answered: Callable[[Command, CommandResult | str], None]
    """Answers a command that is over."""
    hold: Callable[[int, str], None]
    """Holds the run after so many steps, for a reason, until the user lets it go on."""
    release: Callable[[], None]
    measured: Callable[[], None]
    """Emits what was measured of the steps so far."""
    steps_until_scheduled: Callable[[], int]
    """Returns after how many more steps the schedule has a change."""
    steps_in_backward: Callable[[], bool]
    """Returns whether optimizers step within backward."""
    steps_left: Callable[[], int | None] = lambda: None
    """Returns how many more steps the script is going to make, if that is known."""


class Tries:
    """Handles `TryChange` and `EndTry`, and gives batches to the script again.

    Args:
        context: the parts of the probe.
        keeping: keeps the states that a try returns to.
        crossing: the boundary that is crossed.
        epochs: knows the iterator of the training batches.
        around: carries out the changes, and holds the run.
    """

    def __init__(
        self, context: ProbeContext, keeping: StateKeeping, crossing: Crossing, epochs: Epochs, around: Around
    ) -> None:
        self.is_on = False
        """A try is under way. The wrapper of `DataLoader` reads it at each batch."""
        self.around = around
        self._emit, self._clock, self._counter, self._view = (
            context.emit, context.clock, context.counter, context.models,
        )  # fmt: skip
        self._keeping, self._crossing, self._epochs = keeping, crossing, epochs
        self.has_changed = False
        """Something was frozen or undone since the freezes were reported last."""
        self._try: _Try | None = None
        self._id = _FIRST_ID

    # Commands

    def begin(self, command: TryChange) -> CommandResult:
        """Begin a try with the next batch; it is answered when it is over. Raises `CommandRefused` and `AnsweredLater`."""
        if self.is_on:
            raise CommandRefused(refusals.TRY_UNDER_WAY)
        self._refuse(command)
        sides = [Side(""), *map(Side, command.changes)]
        self._try, self.is_on = _Try(command, self._crossing.step, sides), True
        raise AnsweredLater

    def _refuse(self, command: TryChange) -> None:
        if self._crossing.by_hand:
            raise CommandRefused(refusals.NO_OPTIMIZER_STEP)
        if self.around.steps_in_backward():
            raise CommandRefused(refusals.TRY_STEPS_IN_BACKWARD)
        if not self._epochs.is_known:
            raise CommandRefused(refusals.NO_LOADER)
        if self._epochs.is_ahead:
            raise CommandRefused(refusals.AHEAD_OF_STEP)
        objections = [self.around.objection(commands_of(change)[0]) for change in command.changes]
        if None not in objections:
            raise CommandRefused(refusals.of_change(command.changes[0], objections[0]))
        steps = command.steps * (1 + len(command.changes)) + 1
        if (due := self.around.steps_until_scheduled()) < steps:
            raise CommandRefused(refusals.schedule_is_due(max(0, due), steps))
        if (left := self.around.steps_left()) is not None and left < steps:
            raise CommandRefused(refusals.too_few_steps_left(steps, left))
        size, room = (1 + len(command.changes)) * self._keeping.size(), self._keeping.states.room
        if size > room:
            raise CommandRefused(refusals.no_room_for_state(size_text(size), size_text(room)))

    def end(self, command: EndTry) -> CommandResult:
        """Choose the side with which the run continues, or end a try that is under way. Raises `CommandRefused`."""
        current = self._try
        if current is None:
            raise CommandRefused(refusals.NO_TRY)
        if current.asks:
            if command.side >= len(current.sides) or current.sides[command.side].ended:
                raise CommandRefused(refusals.no_such_side(command.side))
            current.choice = command.side
            self.around.release()
            return CommandResult("end the try", ())
        if current.batches is None:
            self._close(0, refusals.TRY_WAS_ENDED)
        else:
            current.abandoned = refusals.TRY_WAS_ENDED
        return CommandResult("end the try with the step", ())

    def failed(self, error: Exception) -> None:
        """Answer a try that an error of gradtui has ended."""
        self._close(0, refusals.failed(error))

    def run_ended(self) -> None:
        """Answer a try that the script's end has cut short."""
        if self._try is not None:
            self._close(0, refusals.RUN_ENDED)

    # Batches

    def wanted(self, now: int, iterator: Any, *, is_between: bool) -> Again | None:
        """Handle the request of a batch. Return one that was given before; None if the DataLoader is to give one.

        `is_between`: a step has ended, and nothing of the next one has run.
        """
        current = self._try
        if current is None or not (current.batches is not None or self._begins(current, iterator, is_between)):
            return None
        batches = current.batches
        if batches is None or batches.member(iterator) is None:
            return None
        current.is_first = is_between and current.requested_at != self._counter.ended
        if current.is_first:
            current.requested_at = self._counter.ended
            self._step_ended(current, now)
            if self._is_over(current, iterator):
                self._next_side(current)
                if self._try is None:
                    return None
        if current.at == 0:
            batches.requested(iterator)
            return None
        try:
            given = batches.again(iterator)
        except NotTheSameError as error:
            self._abandon(current, f"the batches {error}", at_once=current.is_first)
            return None
        if current.is_first:
            current.side.step_begins(self._counter.steps + 1, self._clock.now())
        return given

    def arrived(self, now: int, iterator: Any, batch: Any, began: int) -> None:
        """Handle a batch that the DataLoader has given. The script had requested it at `began`."""
        current = self._try
        if current is None or current.batches is None or current.at or current.batches.member(iterator) is None:
            return
        batches = current.batches
        try:
            batches.given(iterator, batch)
        except NotTheSameError as error:
            self._abandon(current, f"the batches {error}", at_once=True)
            return
        steps, room = current.command.steps, self._keeping.states.room
        done = current.side.places + current.is_first
        expected = batches.nbytes * steps // max(1, done)
        if max(batches.nbytes, expected) > room:
            count = len(batches) * steps // max(1, done)
            why = refusals.batches_too_large(count, size_text(expected), size_text(room))
            self._abandon(current, why, at_once=True)
        elif current.is_first:
            current.side.step_begins(self._counter.steps + 1, self._clock.now())
        else:
            current.side.loaded(now - began)

    def ended(self, iterator: Any) -> None:
        """Handle that a DataLoader has no more batches."""
        current = self._try
        if current is None or current.batches is None or current.at or current.batches.member(iterator) is None:
            return
        if len(self._epochs.members) > 1:
            self._abandon(current, refusals.LOADERS_END, at_once=True)
            return
        current.batches.has_ended, current.requested_at = True, -1
        current.between = self._between()

    def saw(self, event: Event) -> None:
        """Take what is measured of the present side."""
        if self._try is not None and self._try.batches is not None:
            self._try.side.saw(event)

    def _begins(self, current: _Try, iterator: Any, is_between: bool) -> bool:
        members = self._epochs.members
        if not is_between or all(each is not iterator for each in members):
            # At the start of an epoch it waits for the second batch, before which nothing tells it from an evaluation.
            if self._counter.steps - current.asked_at > _PATIENCE:
                self._close(0, refusals.NO_LOADER_LOOP)
            return False
        if self._epochs.is_ahead:
            self._close(0, refusals.AHEAD_OF_STEP)
            return False
        self._crossing.begin(self._counter.steps)
        try:
            current.start = self._keeping.keep_for_try("before a try")
        except CommandRefused as refusal:
            self._close(0, str(refusal))
            return False
        current.batches = BatchesGivenAgain(members)
        self._side_begins(current)
        return True

    def _between(self) -> tuple[object, ...]:
        parameters = (tensor for _, tensor in self._view.tree.live_parameters())
        return between_epochs(parameters, self._view.live_optimizers(), self._keeping.schedulers())

    def _step_ended(self, current: _Try, now: int) -> None:
        side = current.side
        side.step_ended(now, rates_of(self._view.live_optimizers()))
        self.around.measured()

    def _is_over(self, current: _Try, iterator: Any) -> bool:
        """Return whether the present side is over."""
        batches, side = current.batches, current.side
        if batches is None or current.abandoned or not side.places:
            return bool(current.abandoned)
        if current.at == 0 and batches.has_ended:
            is_same = current.between == self._between()
            if not is_same:
                current.abandoned = refusals.EPOCH_CHANGES_RUN
                return True
        elif current.at == 0 and not batches.reached(iterator):
            current.abandoned = refusals.OTHER_ITERATOR
            return True
        if side.diverged_at is not None:
            side.ended = f"the loss of step {side.diverged_at + 1:,} is not finite"
            return True
        return side.places >= current.command.steps if current.at == 0 else not batches.left

    # Sides

    def _next_side(self, current: _Try) -> None:
        """End the present side, and begin the next one, or end the try."""
        self._crossing.begin(self._counter.steps)
        self.has_changed = True
        try:
            if current.abandoned:
                self._continue_with(current, 0)
                self._close(0, current.abandoned)
                return
            self._keep_end(current)
            if current.at == 0 and current.side.ended:
                self._close(0, f"without a change {current.side.ended}")
                return
            if not self._begin_next(current):
                self._conclude(current)
        except CommandRefused as refusal:
            self._close(current.at, str(refusal))

    def _keep_end(self, current: _Try) -> None:
        """Keep how the side has ended, if the run may continue from there."""
        is_last, asked = current.at + 1 == len(current.sides), current.command.keep
        if current.at == 0 or not (is_last or current.side.ended or asked == "none"):
            current.ends[current.at] = self._keeping.keep_for_try(f"end of a try: {current.side.change or 'unchanged'}")

    def _begin_next(self, current: _Try) -> bool:
        """Begin the next side whose change is not refused. Return whether there is one."""
        batches, start = current.batches, current.start
        if batches is None or start is None:
            return False
        while current.at + 1 < len(current.sides):
            current.at += 1
            self._keeping.undo_to(start.changes, ORIGIN)
            self._keeping.write_back(start, BY_TRY)
            refusal = self._apply(current.side.change)
            if refusal is None:
                batches.begin_again()
                self._side_begins(current)
                return True
            current.side.ended = f"refused: {refusal}"
        return False

    def _side_begins(self, current: _Try) -> None:
        about = current.command.id, current.at, current.side.change, len(current.sides), current.command.steps
        self._emit(TrySideBegan(self._clock.at(), self._counter.steps, *about))

    def _apply(self, change: str) -> CommandRefused | None:
        for command in commands_of(change):
            self._id -= 1
            refusal = self.around.carry_out(replace(command, id=self._id, origin=ORIGIN))
            if refusal is not None:
                return refusal
        return None

    def _continue_with(self, current: _Try, kept: int) -> None:
        """Put the end of a side in place. Raises `CommandRefused`."""
        if kept == current.at and not current.side.ended and not current.abandoned:
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

    def _conclude(self, current: _Try) -> None:
        sides, keep = tuple(each.figures() for each in current.sides), current.command.keep
        asks = keep == "ask" and ranks.objection_to_hold() is None
        tried = ChangeTried(
            self._clock.at(), self._counter.steps, current.command.id, sides, self._notes(current), asks
        )
        self._emit(tried)
        if asks:
            current.asks = True
            self.around.hold(self._counter.steps, asks_text(tried))
        kept = current.choice if asks else chosen(keep, sides)
        self._continue_with(current, kept)
        self._close(kept, "", tried_text(tried, kept))

    def _notes(self, current: _Try) -> tuple[str, ...]:
        found = []
        if current.batches is not None and not current.batches.is_exact:
            found.append("loading draws random numbers, and the change alters how many the model draws: not to the bit")
        rates = [each.rates for each in current.sides if each.rates]
        sets_rates = any("set-lr" in each.change or "set_" in each.change for each in current.sides)
        if not sets_rates and any(rates_differ(rates[0], other) for other in rates[1:]):
            found.append("the script sets the learning rate from its own counter, so the sides had different ones")
        return tuple(found)

    def _abandon(self, current: _Try, why: str, *, at_once: bool) -> None:
        """End the try without a result, at once or at the next request between two steps."""
        current.abandoned = why
        if at_once:
            self._next_side(current)

    def _close(self, kept: int, why: str, text: str = "") -> None:
        current, self._try, self.is_on = self._try, None, False
        if current is None:
            return
        at = self._clock.at(), self._counter.steps
        self._emit(TryEnded(*at, current.command.id, current.asked_at, kept, why))
        self.around.answered(current.command, why or CommandResult(text, ()))
