"""Figures over the ranks of a job: the table of ranks with those in trouble first, ranges, and norms of shared parameters."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import Job, model

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.reducer import apply
from gradtui.state.rank_figures import Extremes, Trouble, figures_of_job, norm_range, rank_rows, total_norm
from gradtui.text import rank_trouble_text, ranks_outcome, ranks_text


def shared_model() -> ev.ModelsFound:
    """The model of `jobs`, whose `a.weight` each rank has a part of."""
    whole = model()
    first, second = whole.parameters
    return replace(whole, parameters=(replace(first, local_count=2), second))


def heard(job: Job, at: float, silent: dict[int, float] | None = None) -> None:
    apply(job.state, ev.RanksHeard(at, 0, tuple((silent or {}).items())))


def table(job: Job) -> list[tuple[int, Trouble]]:
    return [(row.record.rank, row.trouble) for row in rank_rows(job.job)]


def test_ranks_without_trouble_are_listed_by_number() -> None:
    job = Job(3, joined=(2, 1, 0))
    assert table(job) == [(rank, Trouble.NONE) for rank in range(3)]
    assert [rank_trouble_text(row) for row in rank_rows(job.job)] == ["host"] * 3
    assert ranks_text(job.job) == "3 ranks"


def test_those_in_trouble_come_first_the_worst_before_the_others() -> None:
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
    assert ranks_text(job.job) == "7 ranks, rank 6 gone, rank 1 silent for 5.0 s"


def test_of_several_behind_the_last_one_comes_first() -> None:
    job = Job(3)
    for rank, step in ((0, 100), (1, 90), (2, 50)):
        job.progress(rank, step)
    assert table(job) == [(2, Trouble.BEHIND), (1, Trouble.BEHIND), (0, Trouble.NONE)]


@pytest.mark.parametrize(("rate", "behind"), [(None, Trouble.BEHIND), (4.0, Trouble.BEHIND), (5.0, Trouble.NONE)])
def test_reports_of_fast_steps_may_be_many_steps_apart(rate: float | None, behind: Trouble) -> None:
    job = Job(2)
    job.progress(0, 20)
    job.progress(1, 10)
    job.job.ranks[1].steps_per_second = rate
    assert dict(table(job))[1] is behind


def test_a_rank_is_slow_by_its_own_time_not_by_what_it_waits() -> None:
    job = Job(3)
    for rank, own in enumerate((0.010, 0.010, 0.014)):
        job.progress(rank, 10, forward=own, backward=0.1 - own)
    assert table(job)[0] == (2, Trouble.SLOW)
    figures = figures_of_job(job.job)
    assert figures.own_seconds == Extremes(0.010, 0.014, 0, 2)
    assert figures.steps_per_second is not None
    assert figures.steps_per_second.low == pytest.approx(10)
    # A difference below a millisecond is none.
    quick = Job(3)
    for rank, own in enumerate((0.0010, 0.0010, 0.0019)):
        quick.progress(rank, 10, forward=own)
    assert table(quick)[0] == (0, Trouble.NONE)


def test_ranges_leave_out_what_is_unknown_and_ranks_that_are_gone() -> None:
    job = Job(4)
    assert figures_of_job(job.job) == type(figures_of_job(job.job))(None, None, None)
    for rank, total in ((1, 700), (2, 900), (3, 100)):
        held = MemoryBytes(0, 0, 0, 0, 0, 0, total)
        job.event(rank, ev.MemoryMeasured(1.0, 1, Phase.FORWARD, held, None, False, True))
        job.event(rank, ev.MemoryMeasured(1.0, 1, Phase.OPTIMIZER, replace(held, total=total - 50), None, False, True))
    job.leave(3, "its process is gone")
    assert figures_of_job(job.job).memory == Extremes(700, 900, 1, 2)


def test_the_norm_of_a_replica_is_compared_at_the_newest_common_step() -> None:
    job = Job(3)
    for step, norms in ((8, (1.0, 1.0, 1.0)), (16, (1.0, 1.25, 1.0)), (32, (1.0, 9.0))):
        for rank, norm in enumerate(norms):
            job.norms(rank, step, norm, None)
    found = norm_range(job.job, 0)
    assert found is not None
    assert (found.step, found.low, found.high, found.outlier) == (16, 1.0, 1.25, 1)
    # The parameter has no gradient.
    assert norm_range(job.job, 1) is None
    assert norm_range(job.job, 5) is None


@pytest.mark.parametrize(
    ("norms", "outlier"),
    [
        ((1.0, 1.0), None),
        ((1.0, 3.0), 1),
        ((3.0, 1.0), 1),
        ((0.1, 0.3), 1),
        ((5.0, 1.0, 1.1), 0),
        ((1.0, 1.1, 1.2, 0.1), 3),
        ((math.nan, 1.0), 0),
        ((1.0, math.inf, math.nan), 1),
    ],
)
def test_which_rank_is_named(norms: tuple[float, ...], outlier: int | None) -> None:
    job = Job(len(norms))
    for rank, norm in enumerate(norms):
        job.norms(rank, 1, norm)
    found = norm_range(job.job, 0)
    assert found is not None
    assert found.outlier == outlier
    finite = [norm for norm in norms if math.isfinite(norm)]
    assert found.low == min(finite)
    assert not math.isfinite(found.high) or found.high == max(norms)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=4))
def test_the_norm_of_a_shared_parameter_is_that_of_the_whole(norms: list[float]) -> None:
    job = Job(len(norms), joined=())
    for rank, norm in enumerate(norms):
        job.join(rank, shared_model())
        job.norms(rank, 4, norm, 2.0)
    found = norm_range(job.job, 0)
    assert found is not None
    assert found.combined == pytest.approx(math.hypot(*norms))
    # `a.bias` is a replica: it counts once.
    step, total = total_norm(job.job) or (0, 0.0)
    assert (step, total) == (4, pytest.approx(math.hypot(*norms, 2.0)))


def test_without_a_rank_the_norm_of_the_whole_is_unknown() -> None:
    job = Job(3, joined=())
    for rank in range(3):
        job.join(rank, shared_model())
        job.norms(rank, 4, 1.0, 2.0)
    job.leave(2, "its process is gone")
    found = norm_range(job.job, 0)
    assert found is not None
    assert (found.high, found.combined) == (1.0, None)
    assert total_norm(job.job) is None


def test_norms_of_ranks_that_have_ended_in_order_still_count() -> None:
    job = Job(2)
    for rank in range(2):
        job.norms(rank, 4, 1.0, 2.0)
        job.end(rank, 4)
        job.leave(rank)
    assert norm_range(job.job, 0) is not None
    assert total_norm(job.job) == (4, math.hypot(1.0, 2.0))


def test_nothing_is_combined_while_a_rank_is_missing_or_has_another_model() -> None:
    job = Job(3, joined=(0, 1))
    for rank in range(2):
        job.norms(rank, 4, 1.0, 2.0)
    assert norm_range(job.job, 0) is total_norm(job.job) is None
    other = Job(2, joined=())
    other.join(0)
    other.join(1, model("a.weight", "a.scale"))
    for rank in range(2):
        other.norms(rank, 4, 1.0, 2.0)
    assert norm_range(other.job, 0) is total_norm(other.job) is None


def test_one_rank_has_nothing_to_be_compared_with() -> None:
    job = Job(1)
    job.norms(0, 4, 1.0, 2.0)
    assert norm_range(job.job, 0) is None


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
