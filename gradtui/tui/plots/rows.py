"""Rows of the tree as the plots need them: which parameters they stand for, and their norms over steps. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradtui.protocol.histogram import MAX_WATCHED
from gradtui.state.run_state import TreeState
from gradtui.state.selectors import subtree
from gradtui.state.series import RowHistory
from gradtui.tui.explanations.norm_curve import NormCurve

_CURVES_KEPT = 12


@dataclass(frozen=True)
class Selection:
    """The parameters `first:last` under a name."""

    name: str
    first: int
    last: int


def selection_of(tree: TreeState, row: int) -> Selection:
    """What a row stands for (see `tree_rows`): a parameter where it is negative, else a module's subtree."""
    if row < 0:
        return Selection(tree.parameters[~row].path, ~row, ~row + 1)
    module = tree.modules[row]
    where = subtree(module)
    return Selection(module.path or module.name, where.start, where.stop)


def is_part(tree: TreeState, selection: Selection) -> bool:
    """Whether it is some of the parameters: the curve of all of them is the total's."""
    return 0 < selection.last - selection.first < len(tree.parameters)


def with_gradient(tree: TreeState, selection: Selection) -> list[int]:
    """Those of its parameters whose gradient was measured last; those that train where none was yet."""
    places = range(selection.first, min(selection.last, len(tree.parameters)))
    norms = tree.norms
    if norms is not None:
        return [place for place in places if norms[place] is not None]
    return [place for place in places if tree.trainable[place] != "0"]


def largest(tree: TreeState, places: Iterable[int], count: int) -> list[int]:
    """So many of these parameters, those with the most elements first."""
    return heapq.nsmallest(count, places, key=lambda place: (-tree.parameters[place].count, place))


def to_watch(tree: TreeState, selections: Sequence[Selection]) -> tuple[str, ...]:
    """Paths of the parameters to look at closely, the first selection's first, as many as may be watched."""
    places: dict[int, None] = {}
    for selection in selections:
        places |= dict.fromkeys(largest(tree, with_gradient(tree, selection), MAX_WATCHED))
    return tuple(tree.parameters[place].path for place in list(places)[:MAX_WATCHED])


class NormCurves:
    """The norms of several selections, each joined once."""

    def __init__(self) -> None:
        self._curves: dict[Selection, NormCurve] = {}

    def points(self, history: RowHistory, selection: Selection) -> tuple[list[int], list[float | None]]:
        """Steps and joint norms, oldest first; None where no parameter of it had a gradient."""
        curve = self._curves.pop(selection, None) or NormCurve()
        self._curves[selection] = curve
        while len(self._curves) > _CURVES_KEPT:
            del self._curves[next(iter(self._curves))]
        return curve.points(history, selection.first, selection.last)
