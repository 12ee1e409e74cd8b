"""Figures over the ranks of a job: a row for each rank, the worst first. Pure."""

from __future__ import annotations

import statistics
from enum import IntEnum

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.parts.job import SILENT_S, JobState, RankRecord

_BEHIND = 2
"""Steps that ranks may differ by without one being called behind: their reports come at different times."""
_BEHIND_S = 2.0
"""The same in seconds of training."""
_SLOW = 1.25
"""A rank whose own time of a step is this multiple of the median of all is called slow."""
_SLOW_S = 1e-3
"""The least difference in seconds for that."""
_WAITS = (Phase.BACKWARD, Phase.LOAD)
"""Phases in which a rank also waits for the others: data-parallel gradients are combined within backward."""


class Trouble(IntEnum):
    """What is wrong with a rank, the worst first."""

    FAILED = 0
    GONE = 1
    SILENT = 2
    BEHIND = 3
    SLOW = 4
    NONE = 5


@dataclass(frozen=True)
class RankRow:
    """What is known of one rank now. Sizes in bytes, durations in seconds; None where unknown."""

    record: RankRecord
    trouble: Trouble
    behind: int
    """Steps behind the first rank."""
    own_seconds: float | None
    """Time of a step without backward, in which a rank also waits for the others."""
    memory: int | None
    """The most bytes at the end of a phase of the last sampled steps."""
    norm: float | None
    """Of all gradients of the rank, at the newest step that all ranks have measured: at another step it may differ anyway.
    Without such a step, the newest one."""
    silent_seconds: float


def rank_rows(job: JobState) -> list[RankRow]:
    """Return a row for each rank: those in trouble first, the rest by number."""
    records = [job.ranks[rank] for rank in sorted(job.ranks)]
    first = max((each.step for each in records), default=0)
    own = {each.rank: _own_seconds(each) for each in records}
    known = [seconds for seconds in own.values() if seconds is not None]
    median = statistics.median(known) if len(known) > 1 else None
    rows = []
    for each in records:
        behind, seconds = first - each.step, own[each.rank]
        rows.append(
            RankRow(
                each,
                _trouble(each, job, behind, seconds, median),
                behind,
                seconds,
                _memory(each),
                each.totals.get(job.common_step, each.norm),
                each.seconds_silent(job.now),
            )
        )
    return sorted(
        rows, key=lambda row: (row.trouble, -row.behind if row.trouble is Trouble.BEHIND else 0, row.record.rank)
    )


def _trouble(record: RankRecord, job: JobState, behind: int, own: float | None, median: float | None) -> Trouble:
    if record.exit_code is not None:
        return Trouble.FAILED if record.exit_code else Trouble.NONE
    if not record.is_connected:
        return Trouble.GONE
    if record.seconds_silent(job.now) >= SILENT_S:
        return Trouble.SILENT
    if behind > max(_BEHIND, (record.steps_per_second or 0.0) * _BEHIND_S):
        return Trouble.BEHIND
    if own is not None and median is not None and own > _SLOW * median and own - median > _SLOW_S:
        return Trouble.SLOW
    return Trouble.NONE


def _own_seconds(record: RankRecord) -> float | None:
    own = [seconds for phase, seconds in record.phase_seconds.items() if phase not in _WAITS]
    return sum(own) if own else None


def _memory(record: RankRecord) -> int | None:
    totals = [each.held.total for each in record.memory.values() if each.held.total is not None]
    return max(totals) if totals else None
