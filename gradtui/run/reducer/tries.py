"""Apply the events of tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol import events as ev
from gradtui.run.state.parts.tries import MAX_TRIES
from gradtui.run.state.run_state import RunState
from gradtui.run.text.tries import asks_text, side_text


def _side_began(state: RunState, event: ev.TrySideBegan) -> None:
    state.tries.under_way = event
    state.note(event, "try", side_text(event))


def _tried(state: RunState, event: ev.ChangeTried) -> None:
    tries = state.tries
    tries.under_way, tries.measured = None, event
    if event.asks:
        tries.asks = event
        state.note(event, "try", asks_text(event))


def _ended(state: RunState, event: ev.TryEnded) -> None:
    tries = state.tries
    measured, tries.under_way, tries.asks, tries.measured = tries.measured, None, None, None
    tries.ended[event.command] = event
    while len(tries.ended) > MAX_TRIES:
        del tries.ended[next(iter(tries.ended))]
    if measured is not None:
        # One that the script's end has cut short too.
        tries.results.append((measured, event))
        del tries.results[:-MAX_TRIES]


CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    ev.TrySideBegan: _side_began,
    ev.ChangeTried: _tried,
    ev.TryEnded: _ended,
}
