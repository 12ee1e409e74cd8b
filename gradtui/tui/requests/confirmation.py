"""Which freezes and unfreezes have to be requested twice: those that are large, that hold running statistics, or that would not
fit into memory. Pure.
"""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import SetTrainable, StateOption
from gradtui.run.state.changes.toggles import restored_by
from gradtui.run.state.forecasts.forecast import Forecast, forecast
from gradtui.run.state.forecasts.free_memory import Shortage, shortage
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import row_parameters
from gradtui.tui.requests.requests import Refusal, command_for

SECONDS = 10.0
"""Seconds in which the second request counts."""

_LARGE_SHARE = 0.05
"""A change of more than this share of the trainable elements has to be requested twice."""


@dataclass(frozen=True)
class Confirmation:
    """A freeze or unfreeze that waits until it is requested again for the same row."""

    request: str
    """The id of the request."""
    row: int
    trainable: bool
    state: StateOption
    """What a freeze does with the optimizer's state."""
    version: int
    """The version of the tree that has this row."""
    at: float
    """The time of the first request in seconds."""
    forecast: Forecast
    """What would change."""
    stay: int = 0
    """Number of tensors in the row that stay frozen, if the unfreeze restores what was frozen."""
    lacks: Shortage | None = None
    """The memory that it needs and that is not free; None if it fits, or if that is not known."""


def confirmation_for(
    state: RunState, request: str, row: int | None, awaited: Confirmation | None, now: float
) -> Confirmation | None:
    """Return what must be confirmed before a request is sent; None if it is to be sent, or refused, at once.

    Args:
        state: the run.
        request: its id in `requests.REQUESTS`.
        row: the row under the cursor (see `tree_rows`), None if there are no rows.
        awaited: what the request before this one left to be confirmed.
        now: the time in seconds.
    """
    make = command_for(request, state, row)
    command = None if isinstance(make, Refusal) else make(0)
    if row is None or not isinstance(command, SetTrainable):
        return None
    inside = row_parameters(state.tree, row)
    changed = restored_by(state.tree, command, inside) if command.restore else inside
    change = forecast(state, changed, command.trainable, restores=command.restore)
    lacks = shortage(state, change)
    stay, version = len(inside) - len(changed), state.tree.version
    asked = Confirmation(request, row, command.trainable, command.state, version, now, change, stay, lacks)
    if awaited is not None and _is_same(asked, awaited) and now - awaited.at <= SECONDS:
        return None
    return asked if lacks is not None or is_large(state, change) else None


def _is_same(one: Confirmation, other: Confirmation) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("request", "row", "trainable", "version"))


def is_large(state: RunState, change: Forecast) -> bool:
    """Return whether a change is of the tensors of several modules, or of more than 5 % of the trainable elements, or puts
    modules with running statistics in eval mode."""
    if change.holds:
        return True
    infos = state.tree.parameters
    changed = (*change.stops, *change.starts)
    if len({infos[index].module for index in changed}) > 1:
        return True
    trainable = sum(info.count for info, flag in zip(infos, state.tree.trainable) if flag == "1")
    return change.elements > _LARGE_SHARE * trainable
