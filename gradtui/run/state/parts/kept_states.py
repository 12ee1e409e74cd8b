"""The kept states of the run, and the returns to them. Pure."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.events import CopyProgress, ReturnedToState, ReturnPolicy, ReturnsEnded, StateKept

FINITE = "finite"
"""`StateKept.why` of a state that a return policy keeps."""
MAX_RETURNS = 1_000
"""Most returns that are remembered, the newest ones."""


@dataclass(frozen=True)
class KeptStateInfo:
    """A kept state, with what was known of the run then."""

    kept: StateKept
    loss: float | None
    metrics: tuple[tuple[str, float], ...] = ()
    """The newest values of the metrics of validation data that the script had logged, by name."""


@dataclass(frozen=True)
class Return:
    """A return to a kept state."""

    made: ReturnedToState
    kept: StateKept | None
    """How that state was kept; None if that is not known any more."""
    before: str = ""
    """What was done right after the state was kept by itself, as an action: `freeze blocks.0`. Empty if nothing was."""


@dataclass
class KeptStatesRecord:
    """The states that are kept now, and every return."""

    states: dict[int, KeptStateInfo] = field(default_factory=dict)
    """By number, in the order of keeping."""
    returns: list[Return] = field(default_factory=list)
    """The newest ones."""
    return_count: int = 0
    ended: dict[ReturnPolicy, ReturnsEnded] = field(default_factory=dict)
    """The return policies that have given up."""
    copying: CopyProgress | None = None
    """How far a copy is that takes long; None if none is being made."""
