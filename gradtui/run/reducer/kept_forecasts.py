"""Stores what was forecast of a change at the moment when it is applied. Pure except for the state that it updates."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, SetCheckpointing, SetTrainable
from gradtui.run.state.forecasts.forecast import Forecast, forecast_change
from gradtui.run.state.parts.prediction import ChangesTogether, Prediction
from gradtui.run.state.run_state import RunState

_KEPT = 256


def keep_forecast(state: RunState, event: ev.CommandApplied) -> None:
    """Store what was forecast of this change, if the planner was asked about it, or about the change that it undoes.

    Changes at one step boundary, such as those of a plan, are measured together. Each of them gets the forecast of all
    together, if the planner was asked about that.
    """
    change = _change(state, event)
    made = _predicted(state, change, event.command) if change is not None and change in state.forecasts else None
    undone = state.forecast_of.get(event.undone) if event.undone is not None else None
    if made is None and undone is not None and not undone.others:
        made = undone.undone()
    if made is not None:
        state.forecast_of[event.command.id] = made
    if change is not None:
        state.together = together = _together(state, event, change)
        of_all = _predicted_together(state, together)
        if of_all is not None:
            state.forecast_of |= dict.fromkeys(together.commands, of_all)
    for oldest in list(state.forecast_of)[:-_KEPT]:
        del state.forecast_of[oldest]


def _together(state: RunState, event: ev.CommandApplied, change: ev.Change) -> ChangesTogether:
    """Return the changes at the boundary of an event, with its own."""
    earlier, tree = state.together, state.tree
    appears = _state_bytes(forecast_change(state, change), event.command)
    if earlier is None or earlier.step != event.step or event.undone is not None:
        return ChangesTogether(event.step, tree.trainable, tree.checkpointed, change, appears, (event.command.id,))
    before = earlier.change
    stops, starts = set(change.stops), set(change.starts)
    joined = ev.Change(
        tuple(sorted(stops.union(before.stops) - starts)),
        tuple(sorted(starts.union(before.starts) - stops)),
        (before.checkpoints - change.keeps) | change.checkpoints,
        (before.keeps - change.checkpoints) | change.keeps,
    )
    known = earlier.optimizer_state
    total = None if known is None or appears is None else known + appears
    commands = (*earlier.commands, event.command.id)
    return replace(earlier, change=joined, optimizer_state=total, commands=commands)


def _predicted_together(state: RunState, together: ChangesTogether) -> Prediction | None:
    """Return the forecast of several changes as one, if the planner made it of the state before them."""
    answer = state.forecasts.get(together.change)
    if len(together.commands) < 2 or answer is None or answer.unknown:
        return None
    if (answer.flags, answer.checkpointed) != (together.trainable, together.checkpointed):
        return None
    return Prediction(
        answer.activations,
        answer.gradients,
        together.optimizer_state,
        answer.peak,
        True,
        answer.time,
        len(together.commands) - 1,
    )


def _change(state: RunState, event: ev.CommandApplied) -> ev.Change | None:
    """Return the change of what trains or of what is checkpointed that a command has made; None if it made none."""
    undone = next((each.command for each in state.interventions if each.command.id == event.undone), None)
    command = event.command if undone is None else undone
    if isinstance(command, SetCheckpointing):
        index = next((at for at, module in enumerate(state.tree.modules) if module.path == command.path), None)
        if index is None:
            return None
        modules = frozenset((index,))
        is_on = command.on is (undone is None)
        return ev.Change(checkpoints=modules) if is_on else ev.Change(keeps=modules)
    wishes = {path: part.trainable for part in event.changed for path in part.paths}
    if not wishes:
        return None
    paths = {index: state.tree.parameters[index].path for index in sorted(event.parameters)}
    stops, starts = (
        tuple(index for index, path in paths.items() if wishes.get(path) is wish) for wish in (False, True)
    )
    return ev.Change(stops, starts)


def _predicted(state: RunState, change: ev.Change, command: Command) -> Prediction | None:
    """Return the forecast of a change, if the planner made it of the present state."""
    made = forecast_change(state, change)
    if not made.is_exact and not made.why_not_exact:
        return None
    return Prediction(
        made.activations, made.gradients, _state_bytes(made, command), made.peak, made.is_exact, made.time
    )


def _state_bytes(made: Forecast, command: Command) -> int | None:
    """Return the bytes of optimizer state that appear with a change, those that a freeze drops as negative."""
    option = command.state if isinstance(command, SetTrainable) and made.stops else "keep"
    if option == "keep":
        return made.new_state
    return -made.kept_state if option == "drop" and made.kept_state is not None else None
