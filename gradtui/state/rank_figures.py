"""Figures over the ranks of a job: a row for each rank, the worst first, and the range of a parameter's gradient norm. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from gradtui.protocol.vocabulary import Phase
from gradtui.state.job import SILENT_S, JobState, RankRecord

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
    silent_seconds: float


@dataclass(frozen=True)
class NormRange:
    """The norm of one parameter's gradient on all ranks, at the newest step that all of them have measured."""

    step: int
    low: float
    high: float
    outlier: int | None
    """The rank whose norm is furthest from the median, if norms differ."""
    combined: float
    """The norm of the whole tensor, if each rank has a part of it: the root of the sum of the squares."""


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
                each.seconds_silent(job.now),
            )
        )
    return sorted(
        rows, key=lambda row: (row.trouble, -row.behind if row.trouble is Trouble.BEHIND else 0, row.record.rank)
    )


def _trouble(record: RankRecord, job: JobState, behind: int, own: float | None, median: float | None) -> Trouble:
    if record.ended is not None:
        return Trouble.FAILED if record.ended.exit_code else Trouble.NONE
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


def norm_range(job: JobState, index: int) -> NormRange | None:
    """Return the norms of the parameter with this index, None if no step was measured by all live ranks."""
    records = [each for each in job.ranks.values() if each.norms]
    if len(records) < 2 or len(records) < len(job.live):
        return None
    shared = set.intersection(*({step for step, _ in each.norms} for each in records))
    for step in sorted(shared, reverse=True):
        found = {each.rank: dict(each.norms)[step] for each in records}
        at = {rank: norms[index] for rank, norms in found.items() if index < len(norms)}
        values = [norm for norm in at.values() if norm is not None]
        if len(values) == len(records):
            return _range(step, {rank: norm for rank, norm in at.items() if norm is not None}, values)
    return None


def _range(step: int, at: dict[int, float], values: Sequence[float]) -> NormRange:
    combined = math.sqrt(sum(value * value for value in values))
    unlike = [rank for rank, value in sorted(at.items()) if not math.isfinite(value)]
    if unlike:
        finite = [value for value in values if math.isfinite(value)] or [math.nan]
        return NormRange(step, min(finite), math.inf, unlike[0], combined)
    low, high, median = min(values), max(values), statistics.median(values)
    outlier = max(sorted(at), key=lambda rank: abs(at[rank] - median)) if low != high else None
    return NormRange(step, low, high, outlier, combined)
