"""What the rules about resumed runs have in common. Pure."""

from __future__ import annotations

from gradtui.protocol.events import RunResumed
from gradtui.run.state.run_state import RunState


def is_resumed(each: RunResumed) -> bool:
    """Return whether a run continues a training, as far as that is known. Else it may begin a new one from saved weights."""
    return each.is_restored or each.same_script or each.schedule_goes_on or each.random_draws is not None


def needs_loaded(state: RunState) -> str | None:
    """Return why no rule about resumed runs could match; None if the script has loaded a training before a first step."""
    return None if state.resume.resumed else "no checkpoint was loaded"
