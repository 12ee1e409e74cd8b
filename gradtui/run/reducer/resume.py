"""The functions of the reducer for saved and loaded trainings. Pure except for the state that they update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol import events as ev
from gradtui.run.state.parts.resume import MAX_SAVED
from gradtui.run.state.run_state import RunState


def _saved(state: RunState, event: ev.CheckpointSaved) -> None:
    state.resume.saved.append(event)
    del state.resume.saved[:-MAX_SAVED]


def _resumed(state: RunState, event: ev.RunResumed) -> None:
    state.resume.resumed[event.optimizer] = event


def _refused(state: RunState, event: ev.GroupsRefused) -> None:
    state.resume.refused[event.optimizer, event.step] = event


def _first_batch(state: RunState, event: ev.FirstBatch) -> None:
    batches = state.resume.batches
    batches.setdefault(event.step + 1, event)
    while len(batches) > MAX_SAVED:
        del batches[next(iter(batches))]


CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    ev.CheckpointSaved: _saved,
    ev.RunResumed: _resumed,
    ev.GroupsRefused: _refused,
    ev.FirstBatch: _first_batch,
}
