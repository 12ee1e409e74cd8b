"""What is said of the ranks of a job: who is missing, silent or gone, and how they ended."""

from __future__ import annotations

from gradtui.protocol.events import RunEnded
from gradtui.run.state.parts.job import SILENT_S, JobState, RankRecord
from gradtui.run.state.ranks.rank_failure import first_failure
from gradtui.run.text.ranks import ranks_outcome, ranks_text


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


def test_how_ranks_ended() -> None:
    whole = job(2)
    for record in whole.ranks.values():
        record.ended = RunEnded(1.0, 10, 0, None)
    assert ranks_outcome(whole) == "2 ranks, 10 steps each"
    failed = job(3)
    failed.ranks[0].ended = RunEnded(1.0, 10, 0, None)
    failed.ranks[1].ended, failed.ranks[1].step = RunEnded(1.0, 7, 1, "Traceback\n  x\nValueError: no\n"), 7
    assert ranks_outcome(failed) == "3 ranks, 7 to 10 steps, rank 1 failed, the end of rank 2 not seen"


def test_error_is_that_of_rank_that_failed_first() -> None:
    both = job(2)
    for rank, heard in ((0, 9.0), (1, 8.0)):
        both.ranks[rank].ended = RunEnded(1.0, 10, 1, f"Traceback\nValueError: {rank}\n\n")
        both.ranks[rank].heard_at = heard
    failure = first_failure(both)
    assert failure is not None
    assert failure.words == "rank 1: ValueError: 1"
    assert first_failure(job(2)) is None
