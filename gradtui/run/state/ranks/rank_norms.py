"""The gradient norms of the same parameters on all ranks of a job. Pure.

Ranks have the gradient of a replica in common: `DistributedDataParallel` averages it in backward, so its norm is the same on
all ranks, and another norm on one of them says that it was not averaged. Of a parameter that is sharded (`fully_shard`, a
DTensor) each rank has a part: the norm of the whole is the root of the sum of the squares of the norms of the parts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gradtui.protocol.vocabulary import ParameterInfo
from gradtui.run.state.parts.job import JobState, NormRange, RankRecord

NOTICEABLE = 0.01
"""Norms of a replica that differ by at least this share of the highest one are said to differ. The same gradient has norms that
differ by less where ranks have different devices."""

Row = tuple[float | None, ...]


def common_norms(job: JobState) -> Iterator[tuple[int, dict[int, Row]]]:
    """Yield the steps that all ranks that train, or have ended in order, have measured, the newest first; and the norms."""
    records = [job.ranks[rank] for rank in sorted(job.ranks) if _counts(job.ranks[rank])]
    if len(records) < 2 or len(job.ranks) < job.size or any(each.outline != records[0].outline for each in records):
        return
    of_each = {each.rank: dict(each.norms) for each in records}
    for step in sorted(set.intersection(*map(set, of_each.values())), reverse=True):
        yield step, {rank: norms[step] for rank, norms in of_each.items()}


def _counts(record: RankRecord) -> bool:
    return record.is_connected if record.ended is None else not record.ended.exit_code


def norms_on_ranks(job: JobState, index: int) -> tuple[int, dict[int, float]] | None:
    """Return the newest step at which all ranks have measured the norm of the parameter with this index, and its norms by rank.

    None without such a step, while ranks are missing, and if the models of the ranks differ: then no index of one rank is that
    of another.
    """
    for step, norms in common_norms(job):
        at = {rank: norm for rank, each in norms.items() if index < len(each) and (norm := each[index]) is not None}
        if len(at) == len(norms):
            return step, at
    return None


def spread_of(step: int, norms: Mapping[int, float | None]) -> NormRange | None:
    """Return the range of norms by rank, of which some may be missing; None if all are."""
    at = {rank: norm for rank, norm in norms.items() if norm is not None}
    if not at:
        return None
    missing = tuple(rank for rank in norms if rank not in at)
    found = range_of(step, at)
    # Where one has a gradient and several have none, or the other way round, that one is the outlier.
    few = missing if len(missing) < len(at) else tuple(at)
    return replace(found, missing=missing, outlier=few[0] if len(few) == 1 else found.outlier) if missing else found


def range_of(step: int, at: Mapping[int, float]) -> NormRange:
    """Return the range of norms by rank, of which there must be one."""
    unlike = [rank for rank, value in at.items() if not math.isfinite(value)]
    if unlike:
        low = min((rank for rank in at if rank not in unlike), key=at.__getitem__, default=unlike[0])
        return NormRange(step, at[low], at[unlike[0]], low, unlike[0], unlike[0])
    low, high = min(at, key=at.__getitem__), max(at, key=at.__getitem__)
    if at[low] == at[high]:
        return NormRange(step, at[low], at[high], low, high, None)
    median = statistics.median(at.values())
    # Of two, the one that is not the lowest rank.
    furthest = max(at) if len(at) == 2 else max(at, key=lambda rank: (abs(at[rank] - median), rank))
    return NormRange(step, at[low], at[high], low, high, furthest)


def is_noticeable(found: NormRange) -> bool:
    """Return whether norms of a replica differ by more than rounding."""
    if found.missing:
        return True
    if not math.isfinite(found.high):
        return math.isfinite(found.low)
    return found.high - found.low >= NOTICEABLE * found.high > 0


def unlike_norms(step: int, norms: Mapping[int, Row], holders: Sequence[int]) -> dict[int, NormRange]:
    """Return the ranges of the replicas whose norms differ noticeably, by the index of the parameter."""
    rows = distinct(norms.values())
    if len(rows) == 1:
        return {}
    found = {}
    for index, (holding, column) in enumerate(zip(holders, zip(*rows))):
        if holding != REPLICA or column.count(column[0]) == len(column):
            continue
        made = spread_of(step, {rank: row[index] for rank, row in norms.items()})
        if made is not None and is_noticeable(made):
            found[index] = made
    return found


def shared_rows(norms: Mapping[int, Row]) -> dict[int, Row]:
    """Return the norms by rank; rows that are equal are one object then, since most ranks have the same norms of replicas."""
    found: list[Row] = []
    shared = {}
    for rank, row in norms.items():
        known = next((each for each in found if each == row), None)
        if known is None:
            found.append(row)
        shared[rank] = row if known is None else known
    return shared


def distinct(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are different objects."""
    return list({id(row): row for row in rows}.values())


def is_shard(info: ParameterInfo) -> bool:
    """Return whether the process that has listed this parameter has only a part of it."""
    return info.local_count is not None and info.local_count != info.count


REPLICA, _UNKNOWN = 0, -1


def holders_of(job: JobState) -> list[int]:
    """Return for each parameter how many ranks have each part of it; `REPLICA` where each rank has all of it.

    With hybrid sharding several ranks have each part, all parts equally many.
    """
    found = []
    for column in zip(*(each.parameters for each in job.ranks.values())):
        whole = column[0]
        if not any(map(is_shard, column)):
            found.append(REPLICA)
            continue
        held = sum(each.count if each.local_count is None else each.local_count for each in column)
        found.append(held // whole.count if whole.count and held and held % whole.count == 0 else _UNKNOWN)
    return found


def whole_row(norms: Mapping[int, Row], holders: Sequence[int]) -> Row | None:
    """Return the norm of each whole parameter, from the norms on all ranks of the job; None if they have other parameters.

    A part that several ranks have counts once. A parameter whose parts do not add up to it has no norm.
    """
    rows = tuple(norms.values())
    if any(len(row) != len(holders) for row in rows):
        return None
    return tuple(
        column[0] if holding == REPLICA else _joined(column, holding) for column, holding in zip(zip(*rows), holders)
    )


def _joined(parts: Sequence[float | None], holders: int) -> float | None:
    known = [part for part in parts if part is not None]
    if holders == _UNKNOWN or not known:
        return None
    return math.hypot(*known) / math.sqrt(holders)
