"""The log of a run: one entry for each event that the user should read later."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.state.run_state import LogEntry, RunState

LOG_LENGTH = 1_000


def note(state: RunState, event: ev.Event, kind: str, text: str) -> None:
    state.log.append(LogEntry(event.at, event.step, kind, text))
    state.log_count += 1
    if len(state.log) > LOG_LENGTH:
        del state.log[: LOG_LENGTH // 10]
