"""What is said of the ranks of a job: who is missing, silent or gone, and how they ended."""

from __future__ import annotations

from gradtui.run.state.parts.job import SILENT_S, JobState, RankRecord
from gradtui.run.text.ranks import ranks_text


def job(count: int, size: int | None = None) -> JobState:
    ranks = {rank: RankRecord(rank, 0, rank, "host", 100 + rank, 0.0, 50.0, step=10) for rank in range(count)}
    return JobState(size=size or count, ranks=ranks, shown=0, now=50.0)


def test_ranks_that_have_not_joined_are_counted() -> None:
    assert ranks_text(job(2)) == "2 ranks"
    assert ranks_text(job(1, 4)) == "1 of 4 ranks joined"


def test_rank_that_is_silent_or_gone_is_named() -> None:
    silent = job(3)
    silent.ranks[2].heard_at = 50.0 - SILENT_S - 2
    assert ranks_text(silent) == "3 ranks, rank 2 silent for 5.0 s"
    gone = job(3)
    gone.ranks[1].left_at, gone.ranks[1].left_reason, gone.ranks[1].is_over = 40.0, "its process is gone", True
    gone.ranks[2].left_at, gone.ranks[2].left_reason = 40.0, "the connection is lost"
    assert ranks_text(gone) == "3 ranks, rank 1 gone, rank 2 out of sight"
