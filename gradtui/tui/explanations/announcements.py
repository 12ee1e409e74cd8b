"""Makes the notifications about events that the user should not miss. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradtui.protocol.commands import (
    PauseAtBadStep,
    SaveAllocatorSnapshot,
    SaveCheckpoint,
    SetCheckpointing,
    SetGroup,
    SetMode,
    TrainOnly,
    Undo,
    VerifyFreeze,
    ZeroGradients,
)
from gradtui.protocol.events import (
    CommandApplied,
    CommandRejected,
    Event,
    FreezeVerified,
    NonFiniteFound,
    OutOfMemory,
    ReceiptTaken,
    ScheduleNoted,
)
from gradtui.state.run_state import RunState
from gradtui.text import nonfinite_text, oom_place

_ANSWERED = (
    PauseAtBadStep,
    SaveAllocatorSnapshot,
    SaveCheckpoint,
    SetCheckpointing,
    SetGroup,
    SetMode,
    TrainOnly,
    Undo,
    VerifyFreeze,
    ZeroGradients,
)
"""Commands whose result says more than the screen shows anyway."""


@dataclass(frozen=True)
class Announcement:
    """The text of a notification."""

    text: str
    title: str = ""
    severity: Literal["information", "warning", "error"] = "information"


def announcement(state: RunState, event: Event) -> Announcement | None:
    """Return the notification for an event that was just applied to the state, None if there is none."""
    if isinstance(event, CommandRejected):
        # The log also says which command was refused, which the event alone does not.
        text = next((entry.text for entry in reversed(state.log) if entry.kind == "rejected"), event.reason)
        return Announcement(text, "Refused", "warning")
    if isinstance(event, FreezeVerified) and event.moved:
        return Announcement(f"{event.moved[0]} moved while frozen", severity="error")
    if isinstance(event, NonFiniteFound) and (event.number == 1 or event.holds):
        words = nonfinite_text(event, with_hold=True)
        return Announcement(words[0].upper() + words[1:], severity="error")
    if isinstance(event, ScheduleNoted):
        return Announcement(event.text, "Schedule", "error" if event.failed else "warning")
    if isinstance(event, ReceiptTaken):
        return Announcement(event.text, severity="information" if event.held else "warning")
    if isinstance(event, CommandApplied) and isinstance(event.command, _ANSWERED):
        return Announcement(event.text)
    if isinstance(event, OutOfMemory) and event.categories:
        return Announcement(f"{oom_place(event)}; v lists what used it", severity="error")
    return None
