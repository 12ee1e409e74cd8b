"""Events of kept states of the run, and of returns to them."""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Event

ReturnPolicy = Literal["nan", "spike"]
"""What a return policy returns at."""


@dataclass(frozen=True, slots=True)
class StateKept(Event):
    """A copy of the run at this step is kept in host memory."""

    number: int
    """From 1."""
    why: str
    """`command`; or why gradtui kept it by itself: `change` before a change, `finite` for a return policy, `best METRIC` when
    that metric was best."""
    name: str
    bytes: int
    seconds: float
    """How long training waited for the copy."""


@dataclass(frozen=True, slots=True)
class ReturnedToState(Event):
    """The run has the values of a kept state again. gradtui continues to count its steps from `step`."""

    number: int
    to_step: int
    """The step of which it has the values."""
    seconds: float
    differing: tuple[str, ...] = ()
    """What is not equal to the copy, in words; empty if every value is."""
    why: str = ""
    """`ReturnToState.why`."""
    left: tuple[str, ...] = ()
    """Names of what the script holds that has changed since and does not come back: its own generators, other tensors, and
    numbers in its modules and objects. Known for states that the user has kept, or that were kept before a change."""


@dataclass(frozen=True, slots=True)
class StateForgotten(Event):
    """The kept states with these numbers are there no longer."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateRenamed(Event):
    """A kept state has another name."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class CopyProgress(Event):
    """How far the copy of a state is that takes more than about a second. Training waits for it."""

    done: int
    """Bytes."""
    total: int
    """About how many bytes there are."""
    what: str
    """`keep` for a copy to host memory, `write` for one to a file."""
    is_over: bool = False
    """The copy has ended, whether it was made or not."""


@dataclass(frozen=True, slots=True)
class ReturnsEnded(Event):
    """A return policy gives up: the run continues as it is, and returns no more by itself."""

    policy: ReturnPolicy
    returns: int
    """How many it has made."""
    reason: str
    """Why it gives up, in words."""
