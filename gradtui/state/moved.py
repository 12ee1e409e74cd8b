"""What moves although the script has frozen it. Pure."""

from __future__ import annotations

from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import ParameterState
from gradtui.state.run_state import RunState


def newly_moved(state: RunState, event: ParametersClassified) -> str | None:
    """Parameters that had not moved before this event, in words; None if there are none.

    What a person froze is left out: the answer to that is an event of its own.
    """
    moved, before = ParameterState.MOVED.value, state.tree.states
    if moved not in event.states:
        return None
    by_command = {place for applied in state.interventions for place in applied.parameters}
    new = [
        info.path
        for place, info in enumerate(state.tree.parameters)
        if event.states[place] == moved != before[place] and place not in by_command
    ]
    if not new:
        return None
    shown = " and ".join(new[:2]) if len(new) <= 2 else f"{new[0]} and {len(new) - 1:,} more"
    return f"{shown} moved while frozen by the script: requires_grad is off, yet something writes"
