"""What the states of the tree mean, for its free rows. Pure."""

from __future__ import annotations

from gradtui.state.run_state import TreeState
from gradtui.text import state_counts
from gradtui.tui.rendering import STATE_ROLES, Line, Span, line_width, wrap


def states_legend(tree: TreeState, width: int, room: int) -> list[Line]:
    """Count the states and explain their words, or only count them, in at most `room` lines; empty if that does not fit."""
    counts = state_counts(tree)
    for explained in (True, False):
        parts: list[Span] = []
        for state, count, meaning in counts:
            note = f" ({meaning})" if meaning and explained else ""
            parts += [(" · " if parts else "", "faint"), (count, STATE_ROLES[state.value]), (note, "faint")]
        lines = [((" ", ""), *line) for line in wrap(parts, max(1, width - 2))]
        if len(lines) <= room and all(line_width(line) <= width for line in lines):
            return lines
    return []
