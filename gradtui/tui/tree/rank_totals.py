"""Which gradient norms differ between the ranks of a job, and how, for the rows of the tree. Pure."""

from __future__ import annotations

from bisect import bisect_left

from gradtui.run.state.parts.job import JobState, NormRange
from gradtui.run.state.ranks.rank_norms import REPLICA, common_norms, distinct, spread_of
from gradtui.tui.tree.range_norms import RangeNorms

_MAX = 2_000_000
"""Norms of all ranks together up to which those of modules are joined."""


class RankTotals:
    """The ranks' norms as of the last `update`. Norms of modules are joined only if they are asked for."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = (0, {}, None)
        self._job: JobState | None = None
        self._unlike: list[int] = []
        self._shards: bytes = b""
        self._rows: dict[int, RangeNorms] | None = None
        self._ranges: dict[range, NormRange | None] = {}

    def update(self, job: JobState | None) -> bool:
        """Take the newest norms. Return whether anything has changed that rows show."""
        of = (0, {}, None) if job is None else (job.common_step, job.unlike_norms, job.holders)
        if of == self._of:
            return False
        was_unlike = bool(self._unlike)
        self._of, self._job, self._rows, self._ranges = of, job, None, {}
        self._unlike = sorted(job.unlike_norms) if job is not None else []
        holders = job.holders if job is not None and job.holders is not None else []
        shards = bytes(holder != REPLICA for holder in holders)
        are_new, self._shards = shards != self._shards, shards
        return are_new or was_unlike or bool(self._unlike)

    def differs(self, where: range) -> bool:
        """Whether the norm of any replica in a range of parameters differs between ranks by more than rounding."""
        at = bisect_left(self._unlike, where.start)
        return at < len(self._unlike) and self._unlike[at] < where.stop

    def parts(self, where: range) -> int:
        """Return of how many ranks the parts of the parameters in a range are combined; 0 if none is sharded."""
        is_sharded = self._shards.find(1, where.start, where.stop) >= 0
        return self._job.size if is_sharded and self._job is not None else 0

    def spread(self, where: range) -> NormRange | None:
        """Return the range of the joint norm over the ranks; None if no norm in it differs."""
        job = self._job
        if job is None or not self.differs(where):
            return None
        if len(where) == 1:
            return job.unlike_norms[where.start]
        if where not in self._ranges:
            self._ranges[where] = self._joined(job, where)
        return self._ranges[where]

    def _joined(self, job: JobState, where: range) -> NormRange | None:
        if self._rows is None:
            step, rows = next(common_norms(job), (0, {}))
            different = distinct(rows.values())
            is_small = sum(map(len, different)) <= _MAX and step == job.common_step
            made = {id(row): RangeNorms(row) for row in different}
            self._rows = {rank: made[id(row)] for rank, row in rows.items()} if is_small else {}
        return spread_of(job.common_step, {rank: row.norm(where) for rank, row in self._rows.items()})
