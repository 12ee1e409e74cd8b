"""States of runs that events alone build."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from helpers.fakes import coop_run


def state_after(*events: ev.Event) -> RunState:
    """Return the state that the events build, one after the other."""
    state = RunState()
    for event in events:
        apply(state, event)
    return state


def coop_after(*more: ev.Event, steps: int = 10) -> RunState:
    """Return the state after `steps` steps of the CoOp run of `fakes`, and `more` events."""
    return state_after(*coop_run(steps), *more)
