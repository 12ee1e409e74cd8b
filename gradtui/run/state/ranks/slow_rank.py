"""The rank for which the others wait. Pure.

Ranks that average their gradients end their steps together. One that needs more time before that makes the others wait, and
they spend the difference where they meet: in backward under `DistributedDataParallel`, else in the script's own code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradtui.dataclass import dataclass
from gradtui.protocol.step_times import StepPart
from gradtui.run.state.parts.job import JobState
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.step_shares import StepShares, step_shares

_STANDS_OUT, _MIN_S = 0.2, 0.002
_TOGETHER = 0.15
"""How much the mean steps of ranks that wait for each other may differ: each has its own first step and its own samples."""
_BEFORE = (StepPart.WAIT, StepPart.PREPARE, StepPart.EVALUATION, StepPart.SAVING)
"""Parts in which no rank waits for another."""


@dataclass(frozen=True)
class SlowRank:
    """A rank that needs longer than the others for its own part of a step. Times are seconds of a step."""

    rank: int
    own: float
    others: float
    """The mean of the other ranks."""
    step: float
    steps: int
    part: StepPart
    """The part that differs most."""
    of_part: float
    """The slow rank's time of it."""
    of_others: float
    """The mean of the others."""

    @property
    def lost(self) -> float:
        """For how long the others wait."""
        return self.own - self.others

    @property
    def share(self) -> float:
        """Of a step, 0 to 1."""
        return self.lost / self.step


def slow_rank(state: RunState) -> SlowRank | None:
    """Return the rank for which the others wait for a fifth of each step or more; None if there is none, or it is unknown."""
    if state.job is None:
        return None
    known = shares_of_ranks(state.job)
    if len(known) < 2:
        return None
    means = [shares.seconds / shares.steps for shares in known.values()]
    if max(means) - min(means) > _TOGETHER * max(means):
        return None
    found = (_slowest(known, parts) for parts in _own_parts(state.job))
    return next((each for each in found if each.share >= _STANDS_OUT and each.lost >= _MIN_S), None)


def shares_of_ranks(job: JobState) -> dict[int, StepShares]:
    """Return the shares of each rank that knows its own."""
    found = {rank: step_shares(record.step_times) for rank, record in job.ranks.items()}
    return {rank: shares for rank, shares in found.items() if shares is not None and not shares.is_disturbed}


def _own_parts(job: JobState) -> Iterator[tuple[StepPart, ...]]:
    """Yield the parts in which a rank waits for no other, the surest ones first."""
    is_sharded = any(each.local_count is not None for rank in job.ranks.values() for each in rank.parameters)
    if not job.has_replicas and not is_sharded:
        yield _BEFORE
        yield (*_BEFORE, StepPart.FORWARD, StepPart.BACKWARD)
        return
    yield (*_BEFORE, StepPart.OTHER)
    if not is_sharded:
        # Replicas with buffers meet at the beginning of forward, too.
        yield (*_BEFORE, StepPart.OTHER, StepPart.FORWARD)


def _slowest(known: Mapping[int, StepShares], parts: tuple[StepPart, ...]) -> SlowRank:
    own = {rank: sum(map(shares.a_step, parts)) for rank, shares in known.items()}
    slow = max(own, key=lambda rank: own[rank])
    rest = [shares for rank, shares in known.items() if rank != slow]

    def others(part: StepPart) -> float:
        return sum(shares.a_step(part) for shares in rest) / len(rest)

    shares = known[slow]
    part = max(parts, key=lambda each: shares.a_step(each) - others(each))
    return SlowRank(
        slow, own[slow], sum(map(others, parts)), shares.seconds / shares.steps, shares.steps,
        part, shares.a_step(part), others(part),
    )  # fmt: skip
