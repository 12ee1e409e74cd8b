"""Rows of the tree for the plots: the parameters of each row, which of them are watched, and their norms over steps."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Watch
from gradtui.protocol.measurements import MAX_WATCHED
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import RunStatus, run_status, subtree
from gradtui.run.state.series import RowHistory, joint_norm
from gradtui.run.state.tree_state import TreeState
from gradtui.transport.in_process import CommandQueue
from gradtui.tui.rendering import printable

_CURVES_KEPT = 12
CELLS_A_CALL = 200_000
TOTAL_ROLE, CLIP_ROLE, LOSS_ROLE = "curve-1", "curve-3", "curve-4"
"""Roles of the total norm, of the total before clipping, and of the loss."""


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


def why_empty(state: RunState, selection: Selection | None, what: str) -> str:
    """Say what the plot of watched parameters waits for, in one or two sentences. `what` is the subject of the plot."""
    if selection is None:
        return "Waiting for the script to build a model."
    name = printable(selection.name)
    if selection.first == selection.last:
        return f"{name} has no parameters."
    if state.ended is not None:
        return f"{name}: the run ended before it was measured. {what} is measured on sampled steps."
    if not with_gradient(state.tree, selection):
        return f"{name} gets no gradient, so there is nothing to show of it; enter says why."
    words = f"{name}: waiting for the next sampled step. {what} is measured on sampled steps."
    if run_status(state) in (RunStatus.PAUSED, RunStatus.PAUSING):
        return f"{words} Training is paused: n runs one step."
    return words


class WatchedParameters:
    """Sends `Watch` commands. They do not change the run and need no answer, so they are not shown as pending."""

    def __init__(self, state: RunState, sink: CommandQueue) -> None:
        self._state, self._sink = state, sink
        self._paths: tuple[str, ...] = ()

    def watch(self, paths: tuple[str, ...]) -> None:
        """Have these parameters measured in detail, and no others."""
        if paths != self._paths and self._state.ended is None:
            self._paths = paths
            self._sink.submit(lambda number: Watch(number, paths))


class NormCurve:
    """The norms of the parameters `first:last` over the kept rows. A change of the range or of the listing restarts it.

    A subtree may have 100,000 parameters. Joined norms are therefore cached, and one call joins a limited number of norms: the
    newest rows first, the others in later calls.
    """

    def __init__(self, cells: int = CELLS_A_CALL) -> None:
        self._cells = cells
        self._history: RowHistory | None = None
        self._range = (0, 0)
        self._known: dict[int, float | None] = {}

    def points(self, history: RowHistory, first: int, last: int) -> tuple[list[int], list[float | None]]:
        """Return steps and joint norms, oldest first; None where no parameter of the range had a gradient."""
        # Each listing of the models has its own history, in which the same indexes belong to other parameters.
        if self._history is not history or self._range != (first, last):
            self._history, self._range, self._known = history, (first, last), {}
        budget, known = self._cells, {}
        for step, row in zip(reversed(history.steps), reversed(history.rows)):
            if step not in self._known:
                if budget <= 0:
                    break
                budget -= last - first
                self._known[step] = joint_norm(row[first:last])
            known[step] = self._known[step]
        self._known = known
        steps = sorted(known)
        return steps, [known[step] for step in steps]


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
