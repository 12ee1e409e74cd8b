"""What every viewer does with an event: apply it to the state of the run, and run the rules. Any thread, but one at a time."""

from __future__ import annotations

from gradtui.protocol.events import Event, RankEvent, RulesRun
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def of_run(state: RunState, event: Event) -> Event:
    """Return what an event says of the run: of an event of the rank whose state this is, the event of that rank."""
    if isinstance(event, RankEvent) and state.job is not None and event.rank == state.job.shown:
        return event.event
    return event


def view(state: RunState, findings: FindingTracker, event: Event, viewer: str) -> list[Event]:
    """Apply an event of a live run to its state. Return what a later viewer must see to have the same state.

    How often rules are run depends on the time that they take, so later viewers are told. An event that cannot be understood
    is a problem of `viewer`, and does not cost the others.
    """
    try:
        apply(state, event)
        inner = of_run(state, event)
        if isinstance(inner, RulesRun):
            # The viewer of that rank has run them, and says so to this one.
            findings.run(state, inner.step)
        elif findings.on_event(state, event):
            return [event, RulesRun(event.at, event.step)]
    except Exception as error:  # noqa: BLE001
        state.note_problem(viewer, f"{type(event).__name__}: {error!r}")
    return [event]


def view_again(state: RunState, findings: FindingTracker, event: Event, viewer: str = "recording") -> list[Event]:
    """Apply an event that `view` has returned, in the same order, and return it. Rules run where they did then."""
    try:
        inner = of_run(state, event)
        if isinstance(inner, RulesRun):
            findings.run(state, inner.step)
        else:
            apply(state, event)
    except Exception as error:  # noqa: BLE001 - a file is not ours
        state.note_problem(viewer, f"{type(event).__name__}: {error!r}")
    return [event]
