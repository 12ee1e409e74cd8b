"""Which rank is said to have failed first: what ranks say themselves comes before what the launcher says of them."""

from __future__ import annotations

from helpers.jobs import Job

from gradtui.run.state.parts.job import JobState
from gradtui.run.state.ranks.rank_failure import first_failure
from gradtui.run.text.ranks import ranks_outcome

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: bad batch\n'
KILLED = (1, 137, "Signal 9 (SIGKILL) received by PID 7")
ENDED = (0, 143, "Signal 15 (SIGTERM) received by PID 6")


def words(job: JobState, *, is_over: bool = False) -> str:
    failure = first_failure(job, is_over=is_over)
    return failure.words if failure is not None else ""


def test_the_first_rank_that_reports_an_error_counts() -> None:
    job = Job(3)
    job.end(2, 9, 1, TRACEBACK, at=5.0)
    job.end(0, 9, 1, "RuntimeError: connection closed by peer", at=5.2)
    job.leave(1, "its process is gone", at=5.1)
    job.blame((0, 1, "To enable traceback see"), (1, 143, "Signal 15"), (2, 1, "To enable traceback see"))
    failure = first_failure(job.job, is_over=True)
    assert failure is not None
    assert (failure.rank, failure.headline) == (2, "ValueError: bad batch")
    assert failure.traceback == tuple(TRACEBACK.splitlines())


def test_killed_rank_comes_before_those_missing_it() -> None:
    job = Job(2)
    job.leave(1, "its process is gone", at=5.0)
    assert words(job.job) == "rank 1: its process is gone"
    job.end(0, 9, 1, "RuntimeError: connection closed by peer", at=5.3)
    job.blame(KILLED, ENDED)
    assert words(job.job, is_over=True) == "rank 1: killed by SIGKILL"
    assert ranks_outcome(job.job) == "2 ranks, 0 to 9 steps, ranks 0, 1 failed"


def test_what_launcher_ends_has_not_failed_by_itself() -> None:
    job = Job(2)
    job.leave(1, "its process is gone", at=5.0)
    job.leave(0, "its process is gone", at=5.4)
    job.blame(KILLED, ENDED)
    assert words(job.job, is_over=True) == "rank 1: killed by SIGKILL"
    assert ranks_outcome(job.job) == "2 ranks, 0 steps each, rank 1 failed, rank 0 ended by the launcher"


def test_rank_out_of_sight_has_not_failed() -> None:
    job = Job(2)
    job.leave(1, "the connection is lost", is_over=None)
    assert first_failure(job.job) is None
    job.blame((1, 1, TRACEBACK))
    failure = first_failure(job.job, is_over=True)
    assert failure is not None
    assert (failure.rank, failure.headline, len(failure.traceback)) == (1, "ValueError: bad batch", 3)


def test_an_interrupted_launcher_blames_no_rank() -> None:
    job = Job(2)
    for rank in range(2):
        job.leave(rank, "its process is gone")
    assert first_failure(job.job, is_over=True) is None


def test_a_rank_that_the_viewer_has_never_seen() -> None:
    job = Job(2, joined=(0,))
    job.blame((1, 3, ""))
    assert words(job.job, is_over=True) == "rank 1: exit code 3"
