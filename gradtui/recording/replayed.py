"""Apply the events of a recording, as the viewer of the run has done."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.diagnostics import FindingTracker
from gradtui.diagnostics.selection import rules_with_ids
from gradtui.protocol.events import Event
from gradtui.recording.reader import Recording
from gradtui.state.run_state import RunState
from gradtui.viewing import view_again


def tracker_of(recording: Recording) -> FindingTracker:
    """Return what runs the rules that ran in the recorded run."""
    ids = recording.header.get("rules")
    known = [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else None
    return FindingTracker(rules_with_ids(tuple(known) if known is not None else None))


def replayed(recording: Recording, on_event: Callable[[Event], None] = lambda _event: None) -> RunState:
    """Return the state of a run when its recording ends. `on_event` receives each event after it was applied."""
    state, findings = RunState(), tracker_of(recording)
    for event in recording.events():
        view_again(state, findings, event)
        on_event(event)
    if recording.is_complete:
        # As the viewer does when the run has ended. In between it runs them at moments that say something.
        findings.run(state)
    return state
