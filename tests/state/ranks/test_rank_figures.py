"""Figures over the ranks of a job: the table of ranks with those in trouble first."""

from __future__ import annotations

import pytest
from helpers.jobs import Job

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.parts.job import NORMS_KEPT
from gradtui.run.state.ranks.rank_figures import Trouble, rank_rows
from gradtui.run.text.ranks import rank_trouble_text, ranks_outcome, ranks_text


def heard(job: Job, at: float, silent: dict[int, float] | None = None) -> None:
    apply(job.state, ev.RanksHeard(at, 0, tuple((silent or {}).items())))


def table(job: Job) -> list[tuple[int, Trouble]]:
    return [(row.record.rank, row.trouble) for row in rank_rows(job.job)]


def test_ranks_without_trouble_are_listed_by_number() -> None:
    job = Job(3, joined=(2, 1, 0))
    assert table(job) == [(rank, Trouble.NONE) for rank in range(3)]
    assert [rank_trouble_text(row) for row in rank_rows(job.job)] == ["host"] * 3
    assert ranks_text(job.job) == "3 ranks"


def test_those_in_trouble_come_first_worst_before_others() -> None:
    job = Job(7)
    for rank in range(7):
        job.progress(rank, 100, steps=1, forward=0.01, optimizer=0.01)
    job.progress(4, 140, steps=40, forward=0.4, optimizer=0.4)
    job.progress(3, 100, steps=10, forward=0.9, optimizer=0.1)
    job.end(5, 100, 1)
    job.leave(5)
    job.leave(6, "its process is gone")
    heard(job, 20.0, {0: 0.1, 1: 5.0, 2: 0.1, 3: 0.1, 4: 0.1})
    for rank in (0, 3):
        job.progress(rank, 141, at=20.0)
    # Rank 2 is 41 steps behind, and does not make them in two seconds.
    job.job.ranks[2].steps_per_second = 10.0
    rows = rank_rows(job.job)
    assert [(row.record.rank, row.trouble) for row in rows] == [
        (5, Trouble.FAILED),
        (6, Trouble.GONE),
        (1, Trouble.SILENT),
        (2, Trouble.BEHIND),
        (3, Trouble.SLOW),
        (0, Trouble.NONE),
        (4, Trouble.NONE),
    ]
    assert [rank_trouble_text(row) for row in rows] == [
        "failed with exit code 1",
        "gone: its process is gone",
        "silent for 5.0 s: stopped, or out of reach",
        "41 steps behind",
        "slow: the others wait for it",
        "host",
        "host",
    ]


def test_of_several_behind_the_last_one_comes_first() -> None:
    job = Job(3)
    for rank, step in ((0, 100), (1, 90), (2, 50)):
        job.progress(rank, step)
    assert table(job) == [(2, Trouble.BEHIND), (1, Trouble.BEHIND), (0, Trouble.NONE)]


@pytest.mark.parametrize(("rate", "behind"), [(None, Trouble.BEHIND), (4.0, Trouble.BEHIND), (5.0, Trouble.NONE)])
def test_fast_steps_are_reported_far_apart(rate: float | None, behind: Trouble) -> None:
    job = Job(2)
    job.progress(0, 20)
    job.progress(1, 10)
    job.job.ranks[1].steps_per_second = rate
    assert dict(table(job))[1] is behind


def test_rank_is_slow_by_own_time() -> None:
    job = Job(3)
    for rank, own in enumerate((0.010, 0.010, 0.014)):
        job.progress(rank, 10, forward=own, backward=0.1 - own)
    assert table(job)[0] == (2, Trouble.SLOW)
    # A difference below a millisecond is none.
    quick = Job(3)
    for rank, own in enumerate((0.0010, 0.0010, 0.0019)):
        quick.progress(rank, 10, forward=own)
    assert table(quick)[0] == (0, Trouble.NONE)


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (((50, 0), (50, 0)), "2 ranks, 50 steps each"),
        (((50, 0), (48, 0)), "2 ranks, 48 to 50 steps"),
        (((50, 0), (48, 1)), "2 ranks, 48 to 50 steps, rank 1 failed"),
        (((50, 0), None), "2 ranks, 0 to 50 steps, the end of rank 1 not seen"),
    ],
)
def test_how_the_ranks_have_ended(ends: tuple[tuple[int, int] | None, ...], text: str) -> None:
    job = Job(2)
    for rank, end in enumerate(ends):
        if end is not None:
            job.end(rank, *end)
    assert ranks_outcome(job.job) == text


def test_norms_of_ranks_are_of_same_step() -> None:
    job = Job(2)
    job.norms(0, 16, 3.0, 4.0)
    job.norms(1, 16, 3.0, 4.0)
    # Only this rank measures step 18.
    job.norms(1, 18, 6.0, 8.0)
    assert [row.norm for row in rank_rows(job.job)] == [5.0, 5.0]
    job.norms(0, 32, 0.0, 7.0)
    assert [row.norm for row in rank_rows(job.job)] == [5.0, 5.0]
    job.norms(1, 32, 0.0, 7.0)
    assert [row.norm for row in rank_rows(job.job)] == [7.0, 7.0]


def test_norm_of_common_step_outlasts_further_reports() -> None:
    """As of short steps, of which a report has hundreds."""
    job = Job(2)
    job.norms(1, 16, 3.0, 4.0)
    figures = tuple(ev.StepFigures(step, 0, None, total=9.0) for step in range(17, 117))
    job.event(1, ev.StepsMeasured(2.0, 116, figures))
    job.norms(0, 16, 3.0, 4.0)
    assert [row.norm for row in rank_rows(job.job)] == [5.0, 5.0]
    assert job.job.ranks[1].norm == 9.0
    assert len(job.job.ranks[1].totals) == 1


def test_rank_without_common_step_has_newest_norm() -> None:
    job = Job(2)
    job.norms(0, 1, 3.0, 4.0)
    job.norms(1, 2, 6.0, 8.0)
    assert [row.norm for row in rank_rows(job.job)] == [5.0, 10.0]


def test_few_norms_are_kept_during_silence() -> None:
    job = Job(2)
    for rank in range(2):
        job.norms(rank, 16, 3.0, 4.0)
    for step in range(17, 500):
        job.norms(1, step, 6.0, 8.0)
    assert [row.norm for row in rank_rows(job.job)] == [5.0, 5.0]
    assert len(job.job.ranks[1].totals) <= NORMS_KEPT + 1
