"""Apply the events of kept states."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.run.state.kept_states import MAX_RETURNS, KeptStateInfo, Return
from gradtui.run.state.run_state import RunState
from gradtui.run.text.return_policies import ended_text


def state_kept(state: RunState, event: ev.StateKept) -> None:
    """A state is kept from now on."""
    losses = state.loss
    loss = losses.values[-1] if len(losses) and losses.steps[-1] == event.step else None
    state.kept.states[event.number] = KeptStateInfo(event, loss)


def returned_to_state(state: RunState, event: ev.ReturnedToState) -> None:
    """The run has the values of an earlier step."""
    state.kept.return_count += 1
    info = state.kept.states.get(event.number)
    state.kept.returns.append(Return(event, info.kept if info is not None else None))
    del state.kept.returns[:-MAX_RETURNS]


def state_forgotten(state: RunState, event: ev.StateForgotten) -> None:
    """Some states are kept no longer."""
    for number in event.numbers:
        state.kept.states.pop(number, None)


def returns_ended(state: RunState, event: ev.ReturnsEnded) -> None:
    """A return policy has given up."""
    state.kept.ended[event.policy] = event
    state.note(event, "returns", ended_text(event))
