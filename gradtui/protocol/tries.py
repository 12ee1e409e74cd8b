"""Events of a try: what changes cost in loss, measured on the same batches without and with them."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Event


@dataclass(frozen=True, slots=True)
class TriedSide:
    """One side of a try: what was measured while the run trained on its batches."""

    change: str
    """As in `TryChange.changes`; empty for the side without a change."""
    losses: tuple[float | None, ...]
    """The loss of each step, in the order of the batches. None where it is unknown."""
    seconds: tuple[float, ...]
    """The time of each step, without the loading of its batches."""
    peak: int | None
    """The highest peak of a step in bytes; None if none was measured."""
    peak_exact: bool = False
    """As in `StepTotals`."""
    ended: str = ""
    """Why the side ended before its last batch, or never began; empty if it has trained on all of them."""
    aside: tuple[float | None, ...] = ()
    """The loss on each batch that training does not use, after the last step of the side; empty if there are none."""


@dataclass(frozen=True, slots=True)
class TrySideBegan(Event):
    """A side of a try begins."""

    command: int
    """The id of the `TryChange`."""
    side: int
    """0 is the side without a change."""
    change: str
    sides: int
    """The number of all sides."""
    steps: int
    """The steps that the side is to make."""


@dataclass(frozen=True, slots=True)
class ChangeTried(Event):
    """All sides of a try have been measured."""

    command: int
    sides: tuple[TriedSide, ...]
    """The first one is that without a change."""
    notes: tuple[str, ...] = ()
    """What makes the comparison less than exact, in words."""
    asks: bool = False
    """The run is held until the user says with which side it continues."""


@dataclass(frozen=True, slots=True)
class TryEnded(Event):
    """A try is over, and the run continues with one of its sides."""

    command: int
    asked_at: int
    """The step at whose boundary it was asked for."""
    kept: int
    """The index of the side."""
    why: str = ""
    """Why it ended without a result; empty if it has one."""
