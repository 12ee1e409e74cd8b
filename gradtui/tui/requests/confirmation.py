"""Which freezes and unfreezes ask for a second press of the same key. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.state.forecast import Forecast, forecast
from gradtui.state.run_state import RunState
from gradtui.state.selectors import row_parameters, trainable_wish
from gradtui.tui.requests.requests import Refusal, command_for

SECONDS = 10.0
"""Seconds in which the second press counts."""

_LARGE_SHARE = 0.05
"""A change of more than this share of the trainable elements asks for a second press."""


@dataclass(frozen=True)
class Confirmation:
    """A freeze or unfreeze that waits for a second press on the same row."""

    row: int
    trainable: bool
    version: int
    """The version of the tree that has this row."""
    at: float
    """The time of the first press in seconds."""
    forecast: Forecast
    """What would change."""


def confirmation_for(state: RunState, row: int | None, awaited: Confirmation | None, now: float) -> Confirmation | None:
    """Return what must be confirmed before a toggle of a row is sent; None if it is to be sent, or refused, at once.

    Args:
        state: the run.
        row: the row under the cursor (see `tree_rows`), None if there are no rows.
        awaited: what the press before this one left to be confirmed.
        now: the time in seconds.
    """
    if row is None or isinstance(command_for("toggle_trainable", state, row), Refusal):
        return None
    parameters = row_parameters(state.tree, row)
    wish = trainable_wish(state, parameters)
    if wish is None:
        return None
    is_second = awaited is not None and (awaited.row, awaited.trainable, awaited.version) == (
        row,
        wish,
        state.tree.version,
    )
    if awaited is not None and is_second and now - awaited.at <= SECONDS:
        return None
    change = forecast(state, parameters, wish)
    return Confirmation(row, wish, state.tree.version, now, change) if is_large(state, change) else None


def is_large(state: RunState, change: Forecast) -> bool:
    """Return whether a change is of the tensors of several modules, or of more than 5 % of the trainable elements."""
    infos = state.tree.parameters
    changed = (*change.stops, *change.starts)
    if len({infos[index].module for index in changed}) > 1:
        return True
    trainable = sum(info.count for info, flag in zip(infos, state.tree.trainable) if flag == "1")
    return change.elements > _LARGE_SHARE * trainable
