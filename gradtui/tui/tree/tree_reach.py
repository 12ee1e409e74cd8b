"""The vertical line beside the rows of the model tree that shows which modules backward reaches and where it stops. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import ENTERED, ParameterState, Reach
from gradtui.state.frontier import Frontier, frontier, with_ancestors
from gradtui.state.run_state import TreeState
from gradtui.text import called, stop_text, why_there
from gradtui.tui.rendering import elide_start, printable, width_of
from gradtui.tui.tree.tree_rows import buffer_at

RUNS, STOPS, PARTLY, WITHIN, HIDDEN = "│", "┯", "┆", "╪", "?"
_MIN_ROOM = 4
_WITHOUT = frozenset({ParameterState.CUT.value, ParameterState.UNREACHED.value})


class TreeReach:
    """The symbol of each row. `update` applies new measurements."""

    def __init__(self, tree: TreeState) -> None:
        self._tree = tree
        self._of: object = None
        self.line: Frontier | None = None
        self._stops: frozenset[int] = frozenset()
        self._stop_parameters: frozenset[int] = frozenset()
        self._holding: frozenset[int] = frozenset()

    def update(self) -> None:
        """Recompute the frontier if its inputs have changed."""
        tree, reach = self._tree, self._tree.reach
        upstream = tree.saved.upstream if tree.saved is not None else ()
        basis = None if reach is None else (reach.reach, reach.grad_modes, reach.called, upstream, tree.states)
        same, self._of = basis == self._of, basis
        if same:
            return
        self.line = frontier(tree)
        line = self.line or Frontier()
        self._stops, self._stop_parameters = frozenset(line.stops), frozenset(line.stop_parameters)
        self._holding = with_ancestors(tree.modules, line.never_entered)

    def mark(self, row: int, *, folded: bool) -> str:
        """Return one cell for a row (see `tree_rows`): blank if backward does not reach it, or if that is unknown."""
        letters = self._tree.reach.reach if self._tree.reach is not None else ""
        if not letters or buffer_at(self._tree, row) is not None:
            return " "
        if row < 0:
            if ~row in self._stop_parameters:
                return STOPS
            is_entered = letters[self._tree.parameters[~row].module] in ENTERED
            return RUNS if is_entered and self._tree.states[~row] not in _WITHOUT else " "
        if letters[row] == Reach.UNKNOWN.value:
            return HIDDEN
        if letters[row] not in ENTERED:
            return " "
        if row in self._stops:
            return STOPS
        if row in self._holding:
            return WITHIN if folded else PARTLY
        return RUNS


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
        rest = printable((stop_text(tree, line, named=1) or "").removeprefix("at "))
    begin = begin if len(begin) + width_of(rest) <= width else short
    room = width - len(begin)
    return begin + elide_start(rest, room) if begin and room >= _MIN_ROOM else ""
