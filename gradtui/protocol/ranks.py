"""Events about the ranks of a job: what a rank says of itself, and what a job's viewer knows of its ranks."""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command
from gradtui.protocol.measurements import Event, Measurement

CHECK_EVERY = 16
"""Steps between two measurements of what ranks must have in common: all ranks measure it at the multiples of this number."""


@dataclass(frozen=True, slots=True)
class ProcessGroupFound(Event):
    """The script has initialised the default process group."""

    rank: int
    ranks: int
    backend: str


@dataclass(frozen=True, slots=True)
class ProposalAnswered(Event):
    """This rank accepts the proposal with the id `proposal`, or refuses it for a reason in words."""

    proposal: int
    accepts: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplicasMeasured(Measurement):
    """What all ranks must have in common after `step`. Tuples and strings are aligned with the parameters of the listing."""

    trainable: str
    """`1` or `0` per parameter: whether it requires a gradient."""
    owned: str
    """`1` or `0` per parameter: whether an optimizer has it."""
    rates: tuple[tuple[float, ...], ...]
    """By optimizer: the learning rate of each parameter group. A rate that is no number is NaN."""
    checksums: tuple[int | None, ...]
    """Per parameter: a checksum of some of its elements, which are the same on all ranks. None where it is no replica: outside
    of `DistributedDataParallel`, or ignored by it."""
    buffers: tuple[int | None, ...] = ()
    """Per buffer: the same. None where the wrapper broadcasts buffers before each forward, since they may differ in between."""


@dataclass(frozen=True, slots=True)
class RankStateTaken(Event):
    """The state of this rank, for the viewer of its job, which shows this rank from now on. The rank sends its later events
    after it, and no other event in between."""

    request: int
    """The id of the command `ShowRank`."""
    state: str
    """A snapshot (`gradtui.run.state.snapshot`) as JSON; empty if the rank could not make one."""


@dataclass(frozen=True, slots=True)
class RankJoined(Event):
    """A process of the job has connected to the viewer. `at` and `step` are those of the viewer."""

    rank: int
    ranks: int
    local_rank: int
    host: str
    pid: int
    generation: int
    """How often the ranks have been started again."""
    is_viewers: bool = False
    """Whether the rank is the process of the viewer itself: its events are those of the run."""


@dataclass(frozen=True, slots=True)
class RankLeft(Event):
    """The connection to a rank has ended. `reason` is empty if its run had ended before."""

    rank: int
    generation: int
    reason: str
    is_over: bool | None = None
    """Whether its process has ended; None if the viewer cannot know."""


@dataclass(frozen=True, slots=True)
class RankFailure:
    """What a launcher says of a rank that has failed."""

    rank: int
    exit_code: int
    """128 and the number of the signal, if one has killed it."""
    message: str
    """The traceback in its error file, or how it ended in words."""


@dataclass(frozen=True, slots=True)
class RanksFailed(Event):
    """The launcher has ended because ranks have failed: the first one first."""

    failures: tuple[RankFailure, ...]


@dataclass(frozen=True, slots=True)
class RanksHeard(Measurement):
    """How many seconds ago the viewer has heard from each connected rank: pairs of rank and seconds."""

    silent: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class CommandProposed(Event):
    """The viewer has proposed a command to all ranks, to be carried out at the boundary after `at_step` steps."""

    proposal: int
    command: Command
    at_step: int


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """What a rank has done about a command that was proposed to all."""

    rank: int
    did: Literal["made", "refused", "accepted", "silent"]
    """`accepted`: it would have made the change, and another rank has refused. `silent`: it has not said what it did."""
    reason: str = ""
    """Why it has refused."""


@dataclass(frozen=True, slots=True)
class ProposalClosed(Event):
    """All ranks have accepted a command and have said what they have done, or it is cancelled for a reason in words."""

    command: int
    """Its id."""
    confirmed: bool
    reason: str = ""
    outcomes: tuple[RankOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class RankEvent(Event):
    """An event of one rank. `at` is when the viewer received it, `step` the step of the event."""

    rank: int
    generation: int
    event: Event
