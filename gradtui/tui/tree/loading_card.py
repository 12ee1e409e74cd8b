"""What the tree shows until the first model is found: what the script does, the first keys, and the words for states. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.states import STATE_SUMMARIES, STATE_WORDS
from gradtui.run.text.units import time_left_text
from gradtui.tui.actions import Action
from gradtui.tui.rendering import BLANK, STATE_ROLES, Line, pad, wrap

FIRST_KEYS = ("toggle_trainable", "explain", "pause", "help")
"""The ids of the actions to know first."""

_STATES = (ParameterState.TRAINED, ParameterState.FLOW_THROUGH, ParameterState.CUT)
_SIGN_WIDTH = 8
_ROOM_FOR_BLANKS = 56


def loading_lines(state: RunState, actions: Iterable[Action], seconds: float, width: int) -> list[Line]:
    """Return the lines of the card.

    Args:
        state: the state of a run without a model.
        actions: those with the ids `FIRST_KEYS`, with their keys in force.
        seconds: since the script was started.
        width: cells.
    """
    gap = [BLANK] if width >= _ROOM_FOR_BLANKS else []
    lines = wrap(((f"{_what(state)} · {time_left_text(seconds)}", "strong"),), width)
    if state.started is not None and state.started.torch_version:
        found = "Found at its first call, or in an optimizer."
        lines += wrap(((found, "muted"),), width)
    lines += gap
    keys = list(actions)
    column = max(_SIGN_WIDTH, *(len(action.key_text) + 1 for action in keys))
    for action in keys:
        lines += _entry(action.key_text, "key", action.title, column, width)
    lines += gap
    for parameter_state in _STATES:
        lines += _entry(
            STATE_WORDS[parameter_state],
            STATE_ROLES[parameter_state.value],
            STATE_SUMMARIES[parameter_state],
            column,
            width,
        )
    return lines


def _what(state: RunState) -> str:
    if state.started is None:
        return "Starting the script"
    if not state.started.torch_version:
        return "The script is loading; torch is not imported yet"
    return "Waiting for the script to build a model"


def _entry(sign: str, role: str, text: str, column: int, width: int) -> list[Line]:
    first, *rest = wrap(((text, "muted"),), max(1, width - column))
    return [((pad(sign, column), role), *first), *(((" " * column, ""), *line) for line in rest)]
