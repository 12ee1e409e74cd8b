"""Sorts the rows of the model tree by a measurement, and decides when to sort them again. Pure, except for its clock.

Measurements change at every step, and a list whose rows move all the time cannot be read. So the rows are sorted again every
few seconds only, and not while the user moves the cursor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gradtui.run.state.time.module_times import longest_modules
from gradtui.run.state.tree_state import TreeState
from gradtui.tui.tree.tree_totals import TreeTotals

_REST_S = 2.0
"""Seconds after the last movement of the cursor, and after the last time, when the rows are sorted again."""
_SHARE = 0.01
"""The share of the time that sorting again may take: the order of 100,000 rows costs more than that of ten."""


class SortedOrder:
    """The column by which rows are sorted, and the step of the order.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.column = ""
        """A name of `tree_columns.SORTABLE`; empty for the tree."""
        self.step: int | None = None
        """The step of the values by which the rows are sorted; None if these do not change, or none is known."""
        self._rows: Sequence[int] = ()
        self._due = 0.0

    def touched(self) -> None:
        """Record that the user has moved the cursor."""
        self._due = max(self._due, self._clock() + _REST_S)

    def rows(self, tree: TreeState, totals: TreeTotals, column: str) -> Sequence[int] | None:
        """Return the rows sorted by a column, as of the newest values; None for the tree, if there is no column."""
        self.column = column
        self._rows, self.step = (), _step_of(tree, totals, column)
        if not column:
            return None
        begin = self._clock()
        self._rows = sorted_rows(tree, totals, column)
        end = self._clock()
        self._due = end + max(_REST_S, (end - begin) / _SHARE)
        return self._rows

    def newer_rows(self, tree: TreeState, totals: TreeTotals) -> Sequence[int] | None:
        """Return the rows in the order of the newest values, if that is another one and its time has come; None otherwise."""
        if self._clock() < self._due or self.step == _step_of(tree, totals, self.column):
            return None
        before = self._rows
        rows = self.rows(tree, totals, self.column)
        return rows if rows != before else None


def _step_of(tree: TreeState, totals: TreeTotals, column: str) -> int | None:
    steps = {
        "norm": totals.ages.norms_step,
        "ratio": tree.gradient_figures_step or None,
        "saved": max(tree.steps, default=None),
        "time": tree.times.step if tree.times is not None else None,
    }
    return steps.get(column)


def sorted_rows(tree: TreeState, totals: TreeTotals, column: str) -> Sequence[int]:
    """Return rows (see `tree_rows`), the largest value first; rows without a value follow in the order of the tree.

    Parameters are listed, but for `saved` and `time` modules: by the bytes that autograd saves in their own operations, and by
    the time of a step in these.

    Args:
        tree: the models.
        totals: the newest measurements.
        column: a name of `tree_columns.SORTABLE`.
    """
    if column == "saved":
        own = tree.saved.by_module if tree.saved is not None else ()
        modules = [index for index, size in enumerate(own) if size]
        return sorted(modules, key=own.__getitem__, reverse=True)
    if column == "time":
        return longest_modules(tree)
    values: dict[str, Callable[[int], float | None]] = {
        "norm": lambda index: totals.row[index] if totals.row is not None else None,
        "ratio": lambda index: totals.ratio(range(index, index + 1)) if index in tree.gradient_figures else None,
        "lr": lambda index: max(totals.rates(range(index, index + 1)), default=None),
        "bytes": lambda index: tree.parameters[index].bytes,
    }
    value = values[column]
    found = [(known, index) for index in range(len(tree.parameters)) if (known := value(index)) is not None]
    found.sort(key=lambda entry: -entry[0] if entry[0] == entry[0] else float("-inf"))
    listed = [index for _, index in found]
    rest = sorted(set(range(len(tree.parameters))) - set(listed))
    return [~index for index in (*listed, *rest)]
