"""Say which parameters of a run are in problem states, which moved while frozen, and why. Pure."""

from __future__ import annotations

from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import STATE_NAMES, ParameterState, StateReason
from gradtui.run.explanation.row import state_cause
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.explanation.states import CAUSES, cause_clause
from gradtui.run.text.units import listed

_LISTED = {
    ParameterState.UNREACHED.value: "",
    ParameterState.ORPHAN.value: "only the script itself can move it",
    ParameterState.MOVED.value: "",
    ParameterState.UNKNOWN.value: "",
}
"""The states whose parameters a report names, with the default reason."""
_MAX_LINES = 8


def state_reason(tree: TreeState, index: int) -> str | None:
    """Return why a parameter is in its state as such a clause; None if the state needs no explanation."""
    return cause_clause(state_cause(tree, index))


def probe_cause(reasons: str, index: int) -> str | None:
    """Return the cause of a parameter's state, of these of all, as far as the probe knows it; None if it knows none."""
    return CAUSES.get(StateReason(reasons[index])) if index < len(reasons) else None


def moved_text(state: RunState, event: ParametersClassified) -> str | None:
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
        cause = probe_cause(event.reasons, index)
        if tree.states[index] != moved or (cause is not None and probe_cause(tree.reasons, index) is None):
            groups.setdefault(cause or "requires_grad is off, and something writes to it", []).append(info.path)
    said = [f"{listed(paths)} moved while frozen by the script: {cause}" for cause, paths in groups.items()]
    return "; ".join(said) or None


def problem_lines(tree: TreeState) -> list[str]:
    """Return a line for each problem state and cause, with the first few of its parameters by name."""
    groups: dict[tuple[str, str], list[str]] = {}
    for index, letter in enumerate(tree.states):
        if letter in _LISTED:
            reason = state_reason(tree, index) or _LISTED[letter]
            if reason or letter != ParameterState.UNKNOWN.value:
                groups.setdefault((letter, reason), []).append(tree.parameters[index].path)
    lines = [
        f"{STATE_NAMES[ParameterState(letter)]}: {listed(paths)}{f' ({reason})' if reason else ''}"
        for (letter, reason), paths in groups.items()
    ]
    return lines[:_MAX_LINES]
