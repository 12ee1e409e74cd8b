"""Frozen rows of a parameter in words: how many train, what a command would change, and why it would be refused. Pure."""

from __future__ import annotations

from gradtui.protocol.commands import SetRowsTrainable
from gradtui.protocol.freezes import RowsInForce
from gradtui.run.state.forecasts.forecast import untrainable
from gradtui.run.state.tree.row_ranges import BadRows, Ranges, count, joined, others, ranges_of, without
from gradtui.run.state.tree.selection import NothingSelected, find
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import refusals
from gradtui.run.text.units import plural


def rows_words(rows: RowsInForce) -> str:
    """Return how many rows of a parameter train: `trains 1,024 of 33,024 rows`."""
    return rows_that_train(rows.count - rows.frozen, rows.count)


def rows_that_train(trained: int, rows: int) -> str:
    """Return the same of these numbers of rows."""
    return f"trains {trained:,} of {rows:,} rows"


def rows_text(rows: RowsInForce | None) -> str | None:
    """What a parameter's row says of rows that are frozen, None where none are."""
    if rows is None:
        return None
    return f"It {rows_words(rows)}; {rows.rows} are frozen. Norms, clipping and Δw/w count the rows that train."


def would_train(tree: TreeState, command: SetRowsTrainable) -> str:
    """Return how many rows would train: `1,024 of 33,024 rows of embed.weight would train`.

    Raises:
        NothingSelected: no run would carry out the command, as far as its state tells. The message says why.
    """
    index, named = _named(tree, command)
    rows, path, is_frozen = tree.parameters[index].shape[0], tree.parameters[index].path, tree.trainable[index] == "0"
    known = tree.frozen_rows.get(index)
    try:
        now: Ranges = ranges_of(known.rows, rows) if known is not None else ()
    except BadRows:
        # Too many ranges to be told.
        return f"{plural(count(named), 'row')} of {path} would {'train' if command.trainable else 'stop training'}"
    if not command.trainable:
        after = joined([*now, *named])
        refused = refusals.already(f"that of {path}", "frozen") if after == now else refusals.ROWS_OF_FROZEN
        if after == now or is_frozen:
            raise NothingSelected(refused)
    elif is_frozen:
        after = others(named, rows)
        if (never := untrainable(tree, (index,))) is not None:
            raise NothingSelected(refusals.not_floating_point(never.path, never.dtype))
    else:
        after = without(now, named, rows)
        if not now:
            raise NothingSelected(refusals.already(path, "trainable"))
    if count(after) == rows:
        raise NothingSelected(refusals.rows_are_all(rows, path))
    return f"{rows - count(after):,} of {plural(rows, 'row')} of {path} would train"


def _named(tree: TreeState, command: SetRowsTrainable) -> tuple[int, Ranges]:
    """Return the parameter and the rows that a command names. Raises `NothingSelected`."""
    path, indices = find(command.path, tree)
    if not indices:
        raise NothingSelected(refusals.NO_PARAMETERS)
    info = tree.parameters[min(indices)]
    if len(indices) != 1:
        several = plural(len(indices), "parameter")
        raise NothingSelected(refusals.rows_of_one(path or "the model", several, info.path))
    if not info.shape:
        raise NothingSelected(refusals.no_rows(info.path))
    try:
        return min(indices), ranges_of(command.rows, info.shape[0])
    except BadRows as bad:
        raise NothingSelected(str(bad)) from None
