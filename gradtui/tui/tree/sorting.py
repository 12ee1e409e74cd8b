"""Sorts the rows of the model tree by a measurement. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtui.state.run_state import TreeState
from gradtui.tui.tree.tree_totals import TreeTotals


def sorted_rows(tree: TreeState, totals: TreeTotals, column: str) -> Sequence[int]:
    """Return rows (see `tree_rows`), the largest value first; rows without a value follow in the order of the tree.

    Parameters are listed, but for `saved` modules, by the bytes that autograd saves in their own operations.

    Args:
        tree: the models.
        totals: the newest measurements.
        column: a name of `tree_columns.SORTABLE`.
    """
    if column == "saved":
        own = tree.saved.by_module if tree.saved is not None else ()
        modules = [index for index, size in enumerate(own) if size]
        return sorted(modules, key=own.__getitem__, reverse=True)
    values: dict[str, Callable[[int], float | None]] = {
        "norm": lambda index: totals.row[index] if totals.row is not None else None,
        "ratio": lambda index: totals.ratio(range(index, index + 1)) if index in tree.figures else None,
        "bytes": lambda index: tree.parameters[index].bytes,
    }
    value = values[column]
    found = [(known, index) for index in range(len(tree.parameters)) if (known := value(index)) is not None]
    found.sort(key=lambda entry: -entry[0] if entry[0] == entry[0] else float("-inf"))
    listed = [index for _, index in found]
    rest = sorted(set(range(len(tree.parameters))) - set(listed))
    return [~index for index in (*listed, *rest)]
