"""Rows of the tree for the plots: the parameters of each row, and their norms over steps. Pure."""

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
    """Return the selection of a row (see `tree_rows`): a parameter if it is negative, else a module's subtree."""
    if row < 0:
        return Selection(tree.parameters[~row].path, ~row, ~row + 1)
    module = tree.modules[row]
    where = subtree(module)
    return Selection(module.path or module.name, where.start, where.stop)


def is_part(tree: TreeState, selection: Selection) -> bool:
    """Whether the selection has some but not all parameters: the curve of all of them is the total."""
    return 0 < selection.last - selection.first < len(tree.parameters)


def with_gradient(tree: TreeState, selection: Selection) -> list[int]:
    """Return its parameters that had a gradient in the newest row of norms; before there is one, those that may train."""
    indices = range(selection.first, min(selection.last, len(tree.parameters)))
    norms = tree.norms
    if norms is not None:
        return [index for index in indices if norms[index] is not None]
    return [index for index in indices if tree.trainable[index] != "0"]


def largest(tree: TreeState, indices: Iterable[int], count: int) -> list[int]:
    """Return the `count` largest of these parameters by number of elements, in descending order."""
    return heapq.nsmallest(count, indices, key=lambda index: (-tree.parameters[index].count, index))


def to_watch(tree: TreeState, selections: Sequence[Selection]) -> tuple[str, ...]:
    """Return the paths of the parameters to watch, those of the first selection first, at most `MAX_WATCHED`."""
    indices: dict[int, None] = {}
    for selection in selections:
        indices |= dict.fromkeys(largest(tree, with_gradient(tree, selection), MAX_WATCHED))
    return tuple(tree.parameters[index].path for index in list(indices)[:MAX_WATCHED])


class NormCurves:
    """The norms of several selections; each selection's norms are joined once."""

    def __init__(self) -> None:
        self._curves: dict[Selection, NormCurve] = {}

    def points(self, history: RowHistory, selection: Selection) -> tuple[list[int], list[float | None]]:
        """Return steps and joint norms, oldest first; None where no parameter of the selection had a gradient."""
        curve = self._curves.pop(selection, None) or NormCurve()
        self._curves[selection] = curve
        while len(self._curves) > _CURVES_KEPT:
            del self._curves[next(iter(self._curves))]
        return curve.points(history, selection.first, selection.last)
