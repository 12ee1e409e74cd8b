"""The vertical line beside the rows of the model tree: where the gradient comes from the loss, and where it stops. Pure.

With modules in execution order the loss is below the last row, and the line rises from it.
"""

from __future__ import annotations

from operator import is_

from gradtui.protocol.vocabulary import ENTERED, ParameterState, Reach
from gradtui.run.state.backward.barriers import called
from gradtui.run.state.backward.frontier import Frontier, frontier, with_ancestors
from gradtui.run.state.tree.rows import buffer_at
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.frontier import stop_text, why_there
from gradtui.tui.rendering import elide_start, printable, width_of

TRAINS, PASSES = "┃", "│"
"""The gradient comes here: to parameters that train, or it only passes."""
STOPS_TRAINS, STOPS = "╻", "╷"
"""The same in the row where backward stops."""
PARTLY, HIDDEN = "┆", "?"
NEVER = "·"
"""Backward never comes here. A blank would read as an indentation of its own beside rows with a line."""
_MIN_ROOM = 4
_WITHOUT = frozenset({ParameterState.CUT.value, ParameterState.UNREACHED.value})


_KINDS = str.maketrans({
    state.value: state.value if state.value in {*_WITHOUT, ParameterState.UNKNOWN.value} else "x" for state in ParameterState
})  # fmt: skip
"""Makes those states equal between which the frontier, and the words for it, do not distinguish."""


class TreeReach:
    """The symbol of each row. `update` applies new measurements."""

    def __init__(self, tree: TreeState) -> None:
        self._tree = tree
        self._of: object = None
        self._seen: tuple[object, ...] = (self,) * 4
        """What the last update saw: never equal before the first."""
        self.line: Frontier | None = None
        """The frontier in all models."""
        self._words: tuple[int, str] | None = None
        self._stops: frozenset[int] = frozenset()
        self._stop_parameters: frozenset[int] = frozenset()
        self._holding: frozenset[int] = frozenset()

    def update(self) -> None:
        """Recompute the frontier if its inputs have changed."""
        tree, flow = self._tree, self._tree.gradient_flow
        upstream = tree.saved.upstream if tree.saved is not None else ()
        seen = (flow, tree.states, tree.trainable, upstream)
        # Several drawings ask between two events, and comparing takes long where there are many parameters.
        if all(map(is_, seen, self._seen)):
            return
        self._seen = seen
        kinds = tree.states.translate(_KINDS)
        basis = None if flow is None else (flow.reach, flow.grad_modes, kinds, tree.trainable, flow.called, upstream)
        same, self._of = basis == self._of, basis
        if same:
            return
        self.line, self._words = frontier(tree), None
        line = self.line or Frontier()
        self._stops, self._stop_parameters = frozenset(line.stops), frozenset(line.stop_parameters)
        self._holding = with_ancestors(tree.modules, line.never_entered)

    def words(self, width: int) -> str:
        """Describe the frontier in a few words, as `frontier_words` does."""
        if self._words is None or self._words[0] != width:
            self._words = width, frontier_words(self._tree, self.line, width)
        return self._words[1]

    def mark(self, row: int, *, trains: bool) -> str:
        """Return one cell for a row (see `tree_rows`): blank if nothing is known yet, for a shared module, and for buffers.

        Args:
            row: the row.
            trains: whether any parameter in it trains.
        """
        letters = self._tree.gradient_flow.reach if self._tree.gradient_flow is not None else ""
        if not letters or buffer_at(self._tree, row) is not None:
            return " "
        if row < 0:
            if ~row in self._stop_parameters:
                return STOPS_TRAINS if trains else STOPS
            is_entered = letters[self._tree.parameters[~row].module] in ENTERED
            if not is_entered or self._tree.states[~row] in _WITHOUT:
                return NEVER
            return TRAINS if trains else PASSES
        if letters[row] == Reach.SHARED.value:
            return " "
        if letters[row] == Reach.UNKNOWN.value:
            return HIDDEN
        if letters[row] not in ENTERED:
            return NEVER
        if row in self._stops:
            return STOPS_TRAINS if trains else STOPS
        if row in self._holding:
            return PARTLY
        return TRAINS if trains else PASSES


def frontier_words(tree: TreeState, line: Frontier | None, width: int) -> str:
    """Describe the frontier in a few words for the frame of the tree; empty if there is none."""
    if line is None or not line.never_entered:
        return ""
    where = stop_text(tree, line)
    if where is not None:
        begin, short, rest = "backward stops at ", f"{STOPS} ", printable(where.removeprefix("at "))
    else:
        begin, short, rest = "backward never enters ", "", printable(called(tree, line.never_entered[0]))
        rest += f" +{len(line.never_entered) - 1}" if len(line.never_entered) > 1 else ""
    whole = f"{begin}{rest}: {why_there(tree, line)}"
    if width_of(whole) <= width:
        return whole
    if where is not None and len(begin) + width_of(rest) > width:
        rest = printable((stop_text(tree, line, most=1) or "").removeprefix("at "))
    begin = begin if len(begin) + width_of(rest) <= width else short
    room = width - len(begin)
    return begin + elide_start(rest, room) if begin and room >= _MIN_ROOM else ""
