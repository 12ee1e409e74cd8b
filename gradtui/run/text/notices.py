"""Notices for a user who is away: the end of the run, a failure, the first NaN, a run that waits or returns no more. Pure."""

from __future__ import annotations

from gradtui.named_tuple import NamedTuple
from gradtui.protocol.events import Event, NonFiniteFound, PauseChanged, ReturnsEnded, RunEnded
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import newest_loss
from gradtui.run.text.nonfinite import nonfinite_text
from gradtui.run.text.return_policies import ended_text
from gradtui.system.printable import printable

_MAX = 300
"""Characters of a message."""


class Notice(NamedTuple):
    """One such event.

    Attributes:
        event: `ended`, `failed`, `nan`, `held` or `gave_up`.
        step: the step in which it happened; None if it is unknown.
        message: what happened, in one line of printable characters.
    """

    event: str
    step: int | None
    message: str


def notice_of(state: RunState, event: Event) -> Notice | None:
    """Return the notice of an event that was just applied to the state; None if it is for those who look at the screen."""
    if isinstance(event, RunEnded) and event is state.ended:
        raised = event.headline
        words = raised or (f"exit code {event.exit_code}" if event.exit_code else "the run has ended")
        return _notice("failed" if raised or event.exit_code else "ended", state.step, words)
    if isinstance(event, NonFiniteFound) and event.number == 1 and not event.holds:
        return _notice("nan", event.step, nonfinite_text(event))
    if isinstance(event, PauseChanged) and event.paused and (event.reason or event.held_step is not None):
        return _notice("held", event.step, event.reason or "held before an optimizer step")
    if isinstance(event, ReturnsEnded):
        return _notice("gave_up", event.step, ended_text(event))
    return None


def notice_facts(state: RunState | None, notice: Notice, script: str, exit_code: int | None = None) -> dict[str, str]:
    """Return the facts of a notice as environment variables; one whose value is unknown is empty."""
    loss = newest_loss(state)[0] if state is not None else None
    if state is not None and state.ended is not None:
        exit_code = state.ended.exit_code
    return {
        "GRADTUI_EVENT": notice.event,
        "GRADTUI_SCRIPT": printable(script)[:_MAX],
        "GRADTUI_STEP": str(notice.step) if notice.step is not None else "",
        "GRADTUI_LOSS": f"{loss:.6g}" if loss is not None else "",
        "GRADTUI_SECONDS": f"{state.seconds:.0f}" if state is not None else "",
        "GRADTUI_EXIT_CODE": str(exit_code) if exit_code is not None else "",
        "GRADTUI_MESSAGE": notice.message,
    }


def notice_text(notice: Notice, script: str) -> str:
    """Return a notice as one line for the user's desktop."""
    where = f", step {notice.step:,}" if notice.step is not None else ""
    return f"{printable(script)[:_MAX]}{where}: {notice.message}"


def _notice(event: str, step: int, words: str) -> Notice:
    return Notice(event, step, printable(words)[:_MAX])
