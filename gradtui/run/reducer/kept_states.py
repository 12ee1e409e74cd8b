"""Apply the events of kept states."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol import events as ev
from gradtui.run.state.parts.kept_states import MAX_RETURNS, KeptStateInfo, Return
from gradtui.run.state.run_state import RunState
from gradtui.run.text.commands import command_text
from gradtui.run.text.kept_states import copied_share, copying_text
from gradtui.run.text.return_policies import ended_text


def state_kept(state: RunState, event: ev.StateKept) -> None:
    """A state is kept from now on."""
    losses = state.loss
    loss = losses.values[-1] if len(losses) and losses.steps[-1] == event.step else None
    metrics = tuple(
        (metric.name, metric.last)
        for metric in state.metrics.by_name.values()
        if metric.side == "validation" and metric.last is not None
    )
    state.kept.states[event.number] = KeptStateInfo(event, loss, metrics)


def returned_to_state(state: RunState, event: ev.ReturnedToState) -> None:
    """The run has the values of an earlier step."""
    state.kept.return_count += 1
    info = state.kept.states.get(event.number)
    kept = info.kept if info is not None else None
    state.kept.returns.append(Return(event, kept, _done_after(state, kept) if kept is not None else ""))
    del state.kept.returns[:-MAX_RETURNS]


def _done_after(state: RunState, kept: ev.StateKept) -> str:
    if kept.why != "change":
        return ""
    found = (each for each in state.interventions if each.step == kept.step and each.at >= kept.at)
    return next((command_text(each.command) for each in found), "")


def state_forgotten(state: RunState, event: ev.StateForgotten) -> None:
    """Some states are kept no longer."""
    for number in event.numbers:
        state.kept.states.pop(number, None)


def state_renamed(state: RunState, event: ev.StateRenamed) -> None:
    """A state has another name."""
    info = state.kept.states.get(event.number)
    if info is not None:
        state.kept.states[event.number] = replace(info, kept=replace(info.kept, name=event.name))


def copy_progress(state: RunState, event: ev.CopyProgress) -> None:
    """A copy is this far. The log has a line for each tenth."""
    before = state.kept.copying
    tenth = -1 if before is None else int(10 * copied_share(before))
    if not event.is_over and int(10 * copied_share(event)) > tenth:
        state.note(event, "keeping", copying_text(event))
    state.kept.copying = None if event.is_over else event


def returns_ended(state: RunState, event: ev.ReturnsEnded) -> None:
    """A return policy has given up."""
    state.kept.ended[event.policy] = event
    state.note(event, "returns", ended_text(event))
