"""Try changes on the batches of the script's own DataLoader. Training thread only.

A try begins where the script requests the batch of a new step, and so does each of its sides: between two requests lies all
that an iteration of the script's loop does. So the state that is kept there has nothing of a batch in it, and the run continues
from the end of any side as if only that side had run.
"""

from __future__ import annotations

from typing import Any

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.commands.tries.one_try import Around, OneTry
from gradtui.probe.commands.tries.steps_aside import StepsAside
from gradtui.probe.commands.tries.try_sides import TrySides
from gradtui.probe.runtime import AnsweredLater, CommandRefused, CommandResult
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.probe.trials import Again, BatchesGivenAgain, NotTheSameError, Side, between_epochs, rates_of
from gradtui.protocol.commands import EndTry, TryChange
from gradtui.protocol.events import Event, TryEnded
from gradtui.run.state.parts.tries import HELD_ASIDE, commands_of
from gradtui.run.text import refusals
from gradtui.run.text.units import size_text

_PATIENCE = 50
"""Steps after which a try that could not begin is refused."""


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
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._view, self._hooks = context.models, context.hooks
        self._keeping, self._crossing, self._epochs = keeping, crossing, epochs
        self.sides = TrySides(context, keeping, crossing, around, self._close)
        self.aside = StepsAside(context, keeping, self.sides, around.modes)
        self._try: OneTry | None = None

    # Commands

    def begin(self, command: TryChange) -> CommandResult:
        """Begin a try with the next batch; it is answered when it is over. Raises `CommandRefused` and `AnsweredLater`."""
        if self.is_on:
            raise CommandRefused(refusals.TRY_UNDER_WAY)
        self._refuse(command)
        sides = [Side(""), *map(Side, command.changes)]
        self._try, self.is_on = OneTry(command, self._crossing.step, sides), True
        raise AnsweredLater

    def _refuse(self, command: TryChange) -> None:
        """Raise `CommandRefused` if a try could not begin, or come to its end."""
        epochs, around = self._epochs, self.around
        if self._crossing.by_hand:
            raise CommandRefused(refusals.TRY_BY_HAND)
        if self._view.steps_in_backward:
            raise CommandRefused(refusals.TRY_STEPS_IN_BACKWARD)
        if not epochs.is_known:
            raise CommandRefused(refusals.NO_LOADER)
        if epochs.is_ahead and len(epochs.members) > 1:
            raise CommandRefused(refusals.AHEAD_OF_STEP)
        objections = [around.objection(commands_of(change)[0]) for change in command.changes]
        if None not in objections:
            raise CommandRefused(refusals.of_change(command.changes[0], objections[0]))
        sides = 1 + len(command.changes)
        evaluates = command.held_aside and self.aside.data.other_than(epochs.members) is not None
        # One step more for each side whose batches are fetched ahead, and those on batches held aside.
        aside = (HELD_ASIDE + epochs.is_ahead) * evaluates
        steps = ((command.steps + epochs.is_ahead + aside) * sides + 1) * self._counter.steps_of_iteration
        if (due := around.steps_until_scheduled()) < steps:
            raise CommandRefused(refusals.schedule_is_due(max(0, due), steps))
        if (left := around.steps_left()) is not None and left < steps:
            raise CommandRefused(refusals.too_few_steps_left(steps, left))
        size, room = (sides + evaluates) * self._keeping.size(), self._keeping.states.room
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
            self.around.boundary.release()
            return CommandResult("end the try", ())
        if current.start is None:
            self._close(0, refusals.TRY_WAS_ENDED)
        else:
            current.abandoned = refusals.TRY_WAS_ENDED
        return CommandResult("end the try with the step", ())

    def failed(self, error: Exception) -> None:
        """Answer a try that an error of gradtui has ended."""
        self._close(0, refusals.failed(error))

    def run_ended(self) -> None:
        """Answer a try that the script's end has cut short."""
        if (current := self._try) is not None:
            measured = self.sides.cut_short(current)
            made = self._counter.steps - current.steps_at
            went_on = current.batches is not None and current.batches.has_ended and not current.at
            # The steps since its last request, which another DataLoader has given their batches.
            went_on = went_on and made > self._counter.steps_of_iteration
            why = refusals.OTHER_ITERATOR if went_on else refusals.RUN_ENDED
            self._close(0, f"{why}: {'; '.join(measured)}" if measured else why)

    # Batches

    def wanted(self, now: int, iterator: Any, *, is_between: bool) -> Again | None:
        """Handle the request of a batch. Return one that was given before; None if the DataLoader is to give one.

        `is_between`: a step has ended, and nothing of the next one has run.
        """
        current = self._try
        if current is None or not (current.start is not None or self._is_at_start(current, iterator, is_between)):
            return None
        batches = current.batches
        if batches is None or batches.member(iterator) is None:
            return None
        current.is_first = is_between and current.requested_at != self._counter.ended
        if current.is_first:
            current.requested_at = self._counter.ended
            self._allow_steps(current)
            self._go_on(current, iterator, now)
            if self._try is None:
                return None
        if current.aside_steps:
            return self.aside.batch(current)
        if current.gives is not None:
            return self._repeated(current, batches)
        if current.at == 0:
            batches.requested(iterator)
            return None
        try:
            given = batches.again(iterator)
        except NotTheSameError as error:
            self.sides.abandon(current, f"the batches {error}", at_once=current.is_first)
            return self._repeated(current, batches) if current.gives is not None else None
        if current.is_first:
            current.side.step_begins(self._counter.steps + 1, self._script_ns(self._clock.now()))
        return given

    def _repeated(self, current: OneTry, batches: BatchesGivenAgain) -> Again:
        """Give the batch that the script is to hold."""
        try:
            return batches.repeated(current.gives or 0, checks=current.gives == 0)
        except NotTheSameError as error:
            current.abandoned = f"the batches {error}"
            self.sides.holding(current, -1, is_held=False, then=lambda: self.sides.finish(current))
            return batches.repeated(-1, checks=False)

    def _go_on(self, current: OneTry, iterator: Any, now: int) -> None:
        """Continue between two steps."""
        if current.gives is not None:
            current.gives, then = None, current.then
            self.sides.carry_on(current, then)
        elif current.aside_steps:
            self.around.measured()
            if not self.aside.go_on(current):
                self.sides.next_side(current)
        elif current.start is not None:
            self._step_ended(current, now)
            if self._is_over(current, iterator) and not self.aside.begin(current, iterator):
                self.sides.next_side(current)

    def _allow_steps(self, current: OneTry) -> None:
        """Let the run make as many steps as the iteration had: with several optimizers, as of a GAN, it has several."""
        made, current.steps_at = self._counter.steps - current.steps_at, self._counter.steps
        if current.start is not None and made > 1:
            self._counter.allow(made - 1)

    def arrived(self, now: int, iterator: Any, batch: Any, began: int) -> None:
        """Handle a batch that the DataLoader has given. The script had requested it at `began`."""
        current = self._try
        if current is None or current.batches is None or current.at or current.batches.member(iterator) is None:
            return
        batches = current.batches
        try:
            batches.given(iterator, batch)
        except NotTheSameError as error:
            self.sides.abandon(current, f"the batches {error}", at_once=True)
            return
        if current.start is None:
            return
        steps, room = current.command.steps, self._keeping.states.room
        done = current.side.places + current.is_first
        expected = batches.nbytes * steps // max(1, done)
        if max(batches.nbytes, expected) > room:
            count = len(batches) * steps // max(1, done)
            why = refusals.batches_too_large(count, size_text(expected), size_text(room))
            self.sides.abandon(current, why, at_once=True)
        elif current.is_first:
            current.side.step_begins(self._counter.steps + 1, self._script_ns(self._clock.now()))
        else:
            current.side.loaded(now - began)

    def ended(self, iterator: Any) -> None:
        """Handle that a DataLoader has no more batches."""
        current = self._try
        if current is None or current.batches is None or current.at or current.batches.member(iterator) is None:
            return
        if current.start is None:
            current.batches.forget()
            current.batches = None
            return
        if len(self._epochs.members) > 1 or current.batches.ahead:
            why = refusals.OTHER_ITERATOR if current.batches.ahead else refusals.LOADERS_END
            self.sides.abandon(current, why, at_once=True)
            return
        current.batches.has_ended, current.requested_at = True, -1
        current.between = self._between()

    def saw(self, event: Event) -> None:
        """Take what is measured of the present side."""
        if self._try is not None and self._try.start is not None:
            self._try.side.saw(event)

    def _is_at_start(self, current: OneTry, iterator: Any, is_between: bool) -> bool:
        """Return whether a try that has not begun takes part in this request."""
        if current.batches is not None and current.requested_at == self._counter.ended:
            # A further batch of the step before it begins.
            return True
        return self._begins(current, iterator, is_between)

    def _begins(self, current: OneTry, iterator: Any, is_between: bool) -> bool:
        members = self._epochs.members
        if not is_between or all(each is not iterator for each in members):
            # At the start of an epoch it waits for the second batch, before which nothing tells it from an evaluation.
            if self._counter.steps - current.asked_at > _PATIENCE:
                self._close(0, refusals.NO_LOADER_LOOP)
            return False
        if self._epochs.is_ahead and not self._holds_one(current, iterator, members):
            return current.batches is not None
        self._crossing.begin(self._counter.steps)
        try:
            current.start = self._keeping.keep_for_try("before a try")
        except CommandRefused as refusal:
            self._close(0, str(refusal))
            return False
        current.steps_at = self._counter.steps
        # A side ends with the request after its last iteration.
        self._counter.allow(2 * (self._counter.steps_of_iteration - 1))
        if current.batches is None:
            current.batches = BatchesGivenAgain(members)
        self.sides.begin(current)
        return True

    def _holds_one(self, current: OneTry, iterator: Any, members: list[Any]) -> bool:
        """Return whether the script holds one batch for the next step, and that one is recorded.

        accelerate fetches each batch a step ahead. So that a side begins with the batches that the first one has had, the one
        that the script holds must be known: it is recorded in the step before.
        """
        if self._epochs.unused(iterator) != 1 or len(members) > 1:
            self._close(0, refusals.AHEAD_OF_STEP)
            return False
        if current.batches is not None and len(current.batches):
            current.batches.keep_newest()
            return True
        current.batches = BatchesGivenAgain(members, ahead=1)
        return False

    def _between(self) -> tuple[object, ...]:
        parameters = (tensor for _, tensor in self._view.tree.live_parameters())
        return between_epochs(parameters, self._view.live_optimizers(), self._keeping.schedulers())

    def _script_ns(self, now: int) -> int:
        """Return a time without what gradtui's hooks have taken so far."""
        return now - self._hooks.own_until(now)

    def _step_ended(self, current: OneTry, now: int) -> None:
        current.side.step_ended(self._script_ns(now), rates_of(self._view.live_optimizers()))
        self.around.measured()

    def _is_over(self, current: OneTry, iterator: Any) -> bool:
        """Return whether the present side is over."""
        batches, side = current.batches, current.side
        if side.ended or batches is None or current.abandoned or not side.places:
            return bool(side.ended or current.abandoned)
        if current.at == 0 and batches.has_ended:
            if current.between != self._between():
                current.abandoned = refusals.EPOCH_CHANGES_RUN
                return True
        elif current.at == 0 and not batches.reached(iterator):
            current.abandoned = refusals.OTHER_ITERATOR
            return True
        if side.diverged_at is not None:
            side.ended = f"the loss of step {side.diverged_at + 1:,} is not finite"
            return True
        return side.places >= current.command.steps if current.at == 0 else not batches.left

    def _close(self, kept: int, why: str, text: str = "") -> None:
        current, self._try, self.is_on = self._try, None, False
        if current is None:
            return
        self.aside.stop()
        self.sides.over()
        if current.batches is not None:
            current.batches.forget()
        at = self._clock.at(), self._counter.steps
        self._emit(TryEnded(*at, current.command.id, current.asked_at, kept, why))
        self.around.answered(current.command, why or CommandResult(text, ()))
