"""Figures over the ranks of a job: a row for each rank, the worst first, and the range of a parameter's gradient norm. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
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
    """The norm of one parameter's gradient on all ranks, at the newest step that all of them have measured.

    A norm that is not finite counts as the highest.
    """

    step: int
    low: float
    high: float
    outlier: int | None
    """The rank whose norm is furthest from the median, if norms differ; the first one whose norm is not finite."""
    combined: float | None
    """The norm of the whole tensor, if each rank has a part: the root of the sum of the squares. None if a rank is gone."""


@dataclass(frozen=True)
class Extremes:
    """The smallest and the largest value of a figure on the ranks that train, and a rank for each."""

    low: float
    high: float
    low_rank: int
    high_rank: int


@dataclass(frozen=True)
class JobFigures:
    """Figures of all ranks that train. None where no rank has reported one."""

    steps_per_second: Extremes | None
    own_seconds: Extremes | None
    """As `RankRow.own_seconds`. Ranks that wait for each other take equally long for a whole step: this tells the slowest."""
    memory: Extremes | None
    """As `RankRow.memory`, in bytes."""


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


def norm_range(job: JobState, index: int) -> NormRange | None:
    """Return the norms of the parameter with this index, None if no step was measured by all ranks that train.

    None too if the models of the ranks differ: then no index of one rank is that of another. And while ranks are missing.
    """
    for step, norms in _common_norms(job):
        at = {rank: norm for rank, each in norms.items() if index < len(each) and (norm := each[index]) is not None}
        if len(at) == len(norms):
            return _range(step, at, is_whole=len(at) == job.size)
    return None


def total_norm(job: JobState) -> tuple[int, float] | None:
    """Return the newest step that all ranks have measured, and the norm of all gradients in it, each counted once.

    Of a parameter that ranks share, the squares of all parts are added. Of others the rank with the lowest number counts. None
    if no step was measured by all ranks that train.
    """
    for step, norms in _common_norms(job):
        lowest = min(norms)
        total = 0.0
        for index, info in enumerate(job.ranks[lowest].parameters):
            is_shared = info.local_count is not None
            if is_shared and len(norms) < job.size:
                return None
            ranks = norms if is_shared else (lowest,)
            parts = [each[index] for rank in ranks if index < len(each := norms[rank])]
            total += sum(part * part for part in parts if part is not None)
        return step, math.sqrt(total)
    return None


def _common_norms(job: JobState) -> Iterator[tuple[int, dict[int, tuple[float | None, ...]]]]:
    """Yield the steps that all ranks that train, or have ended in order, have measured, the newest first; and the norms."""
    records = [job.ranks[rank] for rank in sorted(job.ranks) if _counts(job.ranks[rank])]
    if len(records) < 2 or len(job.ranks) < job.size or any(each.outline != records[0].outline for each in records):
        return
    of_each = {each.rank: dict(each.norms) for each in records}
    for step in sorted(set.intersection(*map(set, of_each.values())), reverse=True):
        yield step, {rank: norms[step] for rank, norms in of_each.items()}


def _counts(record: RankRecord) -> bool:
    return record.is_connected if record.ended is None else not record.ended.exit_code


def figures_of_job(job: JobState) -> JobFigures:
    """Return the ranges of the figures of the ranks that train."""
    rows = [row for row in rank_rows(job) if row.record.is_connected and row.record.ended is None]
    rates = {row.record.rank: row.record.steps_per_second for row in rows}
    return JobFigures(
        _extremes(rates),
        _extremes({row.record.rank: row.own_seconds for row in rows}),
        _extremes({row.record.rank: row.memory for row in rows}),
    )


def _extremes(at: Mapping[int, float | None]) -> Extremes | None:
    known = {rank: value for rank, value in sorted(at.items()) if value is not None}
    if not known:
        return None
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return Extremes(known[low], known[high], low, high)


def _range(step: int, at: Mapping[int, float], *, is_whole: bool) -> NormRange:
    values = [*at.values()]
    combined = math.sqrt(sum(value * value for value in values)) if is_whole else None
    unlike = [rank for rank, value in at.items() if not math.isfinite(value)]
    if unlike:
        low = min((value for value in values if math.isfinite(value)), default=at[unlike[0]])
        return NormRange(step, low, at[unlike[0]], unlike[0], combined)
    low, high, median = min(values), max(values), statistics.median(values)
    if low == high:
        return NormRange(step, low, high, None, combined)
    # Of two, the one that is not the lowest rank.
    furthest = max(at) if len(at) == 2 else max(at, key=lambda rank: (abs(at[rank] - median), rank))
    return NormRange(step, low, high, furthest, combined)
