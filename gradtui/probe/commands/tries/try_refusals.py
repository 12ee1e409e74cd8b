"""Why a try is refused before it begins. Training thread only."""

from __future__ import annotations

from gradtui.probe.commands.crossing import Crossing
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.commands.tries.one_try import Around
from gradtui.probe.runtime import CommandRefused
from gradtui.probe.steps import Epochs, StepCounter
from gradtui.probe.trials import EvaluationData
from gradtui.protocol.commands import TryChange
from gradtui.run.state.parts.tries import HELD_ASIDE, commands_of
from gradtui.run.text import refusals, size_text


def refuse(
    command: TryChange,
    crossing: Crossing,
    epochs: Epochs,
    keeping: StateKeeping,
    around: Around,
    data: EvaluationData,
    counter: StepCounter,
) -> None:
    """Raise `CommandRefused` if a try could not begin, or come to its end."""
    if crossing.by_hand:
        raise CommandRefused(refusals.TRY_BY_HAND)
    if around.steps_in_backward():
        raise CommandRefused(refusals.TRY_STEPS_IN_BACKWARD)
    if not epochs.is_known:
        raise CommandRefused(refusals.NO_LOADER)
    if epochs.is_ahead and len(epochs.members) > 1:
        raise CommandRefused(refusals.AHEAD_OF_STEP)
    objections = [around.objection(commands_of(change)[0]) for change in command.changes]
    if None not in objections:
        raise CommandRefused(refusals.of_change(command.changes[0], objections[0]))
    evaluates = command.held_aside and data.other_than(epochs.members) is not None
    # One step more for each side whose batches are fetched ahead, and those on batches held aside.
    aside = (HELD_ASIDE + epochs.is_ahead) * evaluates
    steps = ((command.steps + epochs.is_ahead + aside) * (1 + len(command.changes)) + 1) * counter.steps_of_iteration
    if (due := around.steps_until_scheduled()) < steps:
        raise CommandRefused(refusals.schedule_is_due(max(0, due), steps))
    if (left := around.steps_left()) is not None and left < steps:
        raise CommandRefused(refusals.too_few_steps_left(steps, left))
    size, room = (1 + len(command.changes) + evaluates) * keeping.size(), keeping.states.room
    if size > room:
        raise CommandRefused(refusals.no_room_for_state(size_text(size), size_text(room)))
