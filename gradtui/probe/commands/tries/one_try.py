"""One try of changes, and what it needs of what carries out commands. Training thread only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.commands.freezes.norm_statistics import PinnedNormStats
from gradtui.probe.kept_states import KeptState, LeftBehind
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.probe.trials import BatchesGivenAgain, CopiedBatch, Side, rates_differ
from gradtui.protocol.commands import Command, TryChange
from gradtui.protocol.events import ChangeTried
from gradtui.run.text import listed


@dataclass(eq=False)
class OneTry:
    """A try that is under way."""

    command: TryChange
    asked_at: int
    sides: list[Side]
    at: int = 0
    """The index of the present side."""
    batches: BatchesGivenAgain | None = None
    """None before it has begun."""
    start: KeptState | None = None
    ends: dict[int, KeptState] = field(default_factory=dict)
    """How the sides ended, by their index."""
    requested_at: int = -1
    """The number of ended steps when the newest batch was requested that was the first one of its step."""
    steps_at: int = 0
    """The steps of all optimizers by then."""
    is_first: bool = False
    """The batch that is loaded now is the first one of its step."""
    between: tuple[object, ...] = ()
    """What the run was at the end of the epoch."""
    abandoned: str = ""
    """Why it is to end without a result."""
    has_other_rates: bool = False
    asks: bool = False
    """The run is held until the user has chosen."""
    choice: int = 0
    """The side that the user has chosen."""
    gives: int | None = None
    """The recorded batch that the script is given until it holds it. What it computes meanwhile is thrown away."""
    then: Callable[[], None] = lambda: None
    """What follows when it holds it."""
    aside: list[CopiedBatch] = field(default_factory=list)
    """Batches that training does not use, for further steps of each side."""
    aside_why: str = ""
    """Why there are none although the script evaluates."""
    aside_random: dict[str, Any] = field(default_factory=dict)
    """The random states before these steps."""
    aside_steps: int = 0
    """How many of these steps the present side still makes."""
    aside_next: int = 0
    has_moved: bool = False
    """The present side has made such steps: the run is not at its end any more."""
    beside: LeftBehind | None = None
    """What the script held when its second side began: nothing is loaded for that one."""
    goes_on: Sequence[str] = ()
    """Names of generators and tensors of the script that change in each side."""
    measured: ChangeTried | None = None
    """What was measured; None before the end."""

    @property
    def side(self) -> Side:
        """The present side."""
        return self.sides[self.at]


@dataclass
class Around:
    """What a try needs of what carries out commands."""

    carry_out: Callable[[Command], CommandRefused | None]
    """Carries out another command at this boundary and answers it; returns why it was refused."""
    objection: Callable[[Command], str | None]
    """Returns why a command would be refused now."""
    answered: Callable[[Command, CommandResult | str], None]
    """Answers a command that is over."""
    hold: Callable[[int, str], None]
    """Holds the run after so many steps, for a reason, until the user lets it continue."""
    release: Callable[[], None]
    measured: Callable[[], None]
    """Emits what was measured of the steps so far."""
    steps_until_scheduled: Callable[[], int]
    """Returns after how many more steps the schedule has a change."""
    steps_in_backward: Callable[[], bool]
    """Returns whether optimizers step within backward."""
    modes: PinnedNormStats
    """Sets modules into eval mode while the script's calls run."""
    steps_left: Callable[[], int | None] = lambda: None
    """Returns how many more steps the script is going to make, if that is known."""


def notes_of(current: OneTry) -> tuple[str, ...]:
    """Return what makes the comparison less than exact, in words."""
    found = []
    if current.batches is not None and not current.batches.is_exact:
        found.append("loading draws random numbers, and the change alters how many the model draws: not to the bit")
    rates = [each.rates for each in current.sides if each.rates]
    sets_rates = any("set-lr" in each.change or "set_" in each.change for each in current.sides)
    if not sets_rates and any(rates_differ(rates[0], other) for other in rates[1:]):
        found.append("the script sets the learning rate from its own counter, so the sides had different ones")
    if current.goes_on:
        are, go = ("is", "goes") if len(current.goes_on) == 1 else ("are", "go")
        found.append(f"{listed(current.goes_on)} {are} the script's own and {go} on from side to side: not to the bit")
    if current.aside_why:
        found.append(f"no loss on batches held aside: {current.aside_why}")
    return tuple(found)
