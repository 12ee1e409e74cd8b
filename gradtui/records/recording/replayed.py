"""Apply the events of a recording, as the viewer of the run has done."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.protocol.events import Event, RankEvent, RankStateTaken
from gradtui.records.recording.reader import Recording
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.diagnostics.selection import rules_with_ids
from gradtui.run.state.run_state import RunState
from gradtui.run.viewing import of_run, view_again


def tracker_of(recording: Recording) -> FindingTracker:
    """Return what runs the rules that ran in the recorded run."""
    ids = recording.header.get("rules")
    known = [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else None
    return FindingTracker(rules_with_ids(tuple(known) if known is not None else None))


def replayed(
    recording: Recording,
    on_event: Callable[[Event], None] = lambda _event: None,
    on_restart: Callable[[], None] = lambda: None,
    state: RunState | None = None,
) -> RunState:
    """Return the state of a run when its recording ends.

    Args:
        recording: the recording, not read so far.
        on_event: receives each event of the run after it was applied. Of a job these are the events of the shown rank.
        on_restart: called when the state begins again: it is that of another rank, or of a restarted one. Where the user has
            chosen another rank, its state goes back to its first step, and continues.
        state: where the events are applied, instead of to a new state.
    """
    state, findings = RunState() if state is None else state, tracker_of(recording)
    shown = _shown(state)
    for event in recording.events():
        view_again(state, findings, event)
        before, shown = shown, _shown(state)
        # A rank that the user chooses trains the same; what the viewer's own process trained before is kept.
        is_choice = isinstance(event, RankEvent) and isinstance(event.event, RankStateTaken)
        if shown != before and not is_choice and not _is_own(state):
            on_restart()
        on_event(of_run(state, event))
    if recording.is_complete:
        # As the viewer does when the run has ended. In between it runs them at moments that say something.
        findings.run(state)
    return state


def _shown(state: RunState) -> tuple[int, int] | None:
    """Return the generation and the number of the rank whose state it is; None if it is that of no rank."""
    job = state.job
    return (job.generation, job.shown) if job is not None and job.shown is not None else None


def _is_own(state: RunState) -> bool:
    """Return whether the state is that of the viewer's own process. It stays the same when that process becomes a rank."""
    return state.job is not None and state.job.own is not None
