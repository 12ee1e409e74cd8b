"""Describe the parameters that move although the script has frozen them. Pure."""

from __future__ import annotations

from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import ParameterState, StateReason
from gradtui.state.run_state import RunState
from gradtui.state.state_reasons import CAUSES


def newly_moved(state: RunState, event: ParametersClassified) -> str | None:
    """Parameters that this event is the first to call moved, or to name the cause of; in words, None if there are none.

    What a person froze is left out: the answer to that is an event of its own.
    """
    moved, tree = ParameterState.MOVED.value, state.tree
    if moved not in event.states:
        return None
    by_command = {index for applied in state.interventions for index in applied.parameters}
    groups: dict[str, list[str]] = {}
    for index, info in enumerate(tree.parameters):
        if event.states[index] != moved or index in by_command:
            continue
        cause = _cause(event.reasons, index)
        if tree.states[index] != moved or (cause is not None and _cause(tree.reasons, index) is None):
            groups.setdefault(cause or "requires_grad is off, and something writes to it", []).append(info.path)
    said = [f"{_listed(paths)} moved while frozen by the script: {cause}" for cause, paths in groups.items()]
    return "; ".join(said) or None


def _cause(reasons: str, index: int) -> str | None:
    return CAUSES.get(StateReason(reasons[index])) if index < len(reasons) else None


def _listed(paths: list[str]) -> str:
    return " and ".join(paths[:2]) if len(paths) <= 2 else f"{paths[0]} and {len(paths) - 1:,} more"
