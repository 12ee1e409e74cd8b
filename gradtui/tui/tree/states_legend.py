"""What the states of the tree mean, for its free rows. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.explanation.states import STATE_WORDS, state_counts
from gradtui.tui.rendering import STATE_ROLES, Line, Span, line_width, wrap
from gradtui.tui.tree.tree_cells import PASSING

_IN_ONE_LINE: tuple[dict[ParameterState, str], ...] = (
    {
        ParameterState.FLOW_THROUGH: "frozen, the gradient goes through",
        ParameterState.CUT: "frozen, nothing is computed or kept",
    },
    {ParameterState.FLOW_THROUGH: "gradient goes through", ParameterState.CUT: "nothing kept"},
    {ParameterState.FLOW_THROUGH: "gradient goes through"},
)
"""The states of frozen parameters in fewer and fewer words, where the tree has no row left."""

_OF_PASSING = " norm of the gradient that goes through"


def legend_line(tree: TreeState, width: int) -> Line:
    """Say in one line what the words for frozen parameters mean; empty if no gradient passes any, or if that does not fit."""
    if ParameterState.FLOW_THROUGH.value not in tree.states:
        return ()
    for form in _IN_ONE_LINE:
        spans: list[Span] = []
        for state, meaning in form.items():
            if state.value in tree.states:
                spans += [(" · " if spans else "", "faint"), (STATE_WORDS[state], STATE_ROLES[state.value])]
                spans.append((f": {meaning}", "muted"))
        if line_width(spans) <= width:
            return tuple(spans)
    return ()


def states_legend(tree: TreeState, width: int, room: int) -> list[Line]:
    """Count the states and explain their words, or only count them, in at most `room` lines; empty if that does not fit."""
    counts = state_counts(tree.states)
    passes = any(state is ParameterState.FLOW_THROUGH for state, _, _ in counts)
    for explained, names_norm in ((True, True), (True, False), (False, False)):
        parts: list[Span] = []
        for state, count, meaning in counts:
            note = f" ({meaning})" if meaning and explained else ""
            parts += [(" · " if parts else "", "faint"), (count, STATE_ROLES[state.value]), (note, "faint")]
        if names_norm and passes:
            parts += [
                (" · ", "faint"),
                (PASSING, STATE_ROLES[ParameterState.FLOW_THROUGH.value]),
                (_OF_PASSING, "faint"),
            ]
        lines = [((" ", ""), *line) for line in wrap(parts, max(1, width - 2))]
        if len(lines) <= room and all(line_width(line) <= width for line in lines):
            return lines
    return []
