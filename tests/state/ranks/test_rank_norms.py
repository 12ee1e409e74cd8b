"""Gradient norms on all ranks: which replicas differ, and the norm of a parameter of which each rank has a part."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from helpers.jobs import Job, model, sharded, shards
from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.parts.job import JobState, NormRange
from gradtui.run.state.ranks.rank_norms import norms_on_ranks, range_of

COUNT = 4
"""Elements of each parameter of `jobs.model`."""


def whole(job: Job) -> tuple[float | None, ...]:
    assert job.job.whole.norms is not None
    return job.job.whole.norms


def norm_range(job: JobState, index: int) -> NormRange | None:
    found = norms_on_ranks(job, index)
    return range_of(*found) if found is not None else None


# Replicas


def test_replica_norm_is_compared_at_common_step() -> None:
    job = Job(3)
    for step, norms in ((8, (1.0, 1.0, 1.0)), (16, (1.0, 1.25, 1.0)), (32, (1.0, 9.0))):
        for rank, norm in enumerate(norms):
            job.norms(rank, step, norm, None)
    found = norm_range(job.job, 0)
    assert found is not None
    assert (found.step, found.low, found.high, found.high_rank, found.outlier) == (16, 1.0, 1.25, 1, 1)
    assert norms_on_ranks(job.job, 0) == (16, {0: 1.0, 1: 1.25, 2: 1.0})
    assert (job.job.common_step, job.job.unlike_norms) == (16, {0: found})
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
    assert found.low == min(finite) == norms[found.low_rank]
    assert not math.isfinite(found.high) or found.high == max(norms) == norms[found.high_rank]


@pytest.mark.parametrize(
    ("norms", "differs"),
    [
        ((1.0, 1.0), False),
        ((1.0, 1.0 + 1e-7), False),
        ((1.0, 1.009), False),
        ((1.0, 1.02), True),
        ((0.0, 0.0), False),
        ((0.0, 1e-12), True),
        ((1.0, math.nan), True),
        ((math.nan, math.nan), False),
        ((math.inf, math.inf), False),
        ((1.0, None), True),
        ((None, None), False),
    ],
)
def test_rounding_is_no_difference(norms: tuple[float | None, ...], differs: bool) -> None:
    job = Job(len(norms))
    for rank, norm in enumerate(norms):
        job.norms(rank, 1, 2.0, norm)
    assert list(job.job.unlike_norms) == ([1] if differs else [])


@pytest.mark.parametrize(
    ("norms", "missing", "outlier"),
    [
        ((None, None, 0.5), (0, 1), 2),
        ((0.5, None, 0.5), (1,), 1),
        ((0.5, None), (1,), 0),
        ((0.5, None, 0.5, None), (1, 3), None),
    ],
)
def test_a_gradient_that_some_ranks_do_not_have(
    norms: tuple[float | None, ...], missing: tuple[int, ...], outlier: int | None
) -> None:
    job = Job(len(norms))
    for rank, norm in enumerate(norms):
        job.norms(rank, 1, 2.0, norm)
    found = job.job.unlike_norms[1]
    assert (found.low, found.high, found.missing, found.outlier) == (0.5, 0.5, missing, outlier)


def test_difference_that_is_over_is_no_longer_shown() -> None:
    job = Job(2)
    for step, other in ((16, 3.0), (32, 1.0)):
        job.norms(0, step, 1.0)
        job.norms(1, step, other)
        assert bool(job.job.unlike_norms) == (step == 16)


def test_parts_are_not_compared() -> None:
    job = shards((2, 2))
    job.norms(0, 4, 1.0, 2.0)
    job.norms(1, 4, 9.0, 2.0)
    assert not job.job.unlike_norms


def test_nothing_is_compared_with_missing_rank() -> None:
    job = Job(3, joined=(0, 1))
    for rank in range(2):
        job.norms(rank, 4, 1.0 + rank, 2.0)
    assert norm_range(job.job, 0) is None
    assert not job.job.unlike_norms
    other = Job(2, joined=())
    other.join(0)
    other.join(1, model("a.weight", "a.scale"))
    for rank in range(2):
        other.norms(rank, 4, 1.0 + rank, 2.0)
    assert norm_range(other.job, 0) is None
    assert not other.job.unlike_norms


def test_one_rank_has_nothing_to_be_compared_with() -> None:
    job = Job(1)
    job.norms(0, 4, 1.0, 2.0)
    assert norm_range(job.job, 0) is None


def test_norms_of_ended_ranks_still_count() -> None:
    job = Job(2)
    for rank in range(2):
        job.norms(rank, 4, 1.0, 2.0)
        job.end(rank, 4)
        job.leave(rank)
    assert norm_range(job.job, 0) is not None


# Parts


@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=4), min_size=2, max_size=5))
def test_norm_of_whole_is_that_of_all_elements(parts: list[list[float]]) -> None:
    """Each rank has any number of the elements, also none."""
    elements = [each for part in parts for each in part]
    first, second = model().parameters
    job = Job(len(parts), joined=())
    for rank, part in enumerate(parts):
        info = replace(first, count=len(elements), local_count=len(part))
        job.join(rank, replace(model(), parameters=(info, second)))
    for rank, part in enumerate(parts):
        job.norms(rank, 4, math.hypot(*part), 2.0)
    if sum(len(part) != len(elements) for part in parts):
        assert whole(job) == (pytest.approx(math.hypot(*elements)), 2.0)
        assert job.job.whole.total.values == [pytest.approx(math.hypot(*elements, 2.0))]


def test_parts_that_several_ranks_hold_count_once() -> None:
    """Hybrid sharding: ranks 0 and 1 share the elements, ranks 2 and 3 have the same two parts."""
    job = shards((3, 1, 3, 1))
    for rank, norm in enumerate((3.0, 4.0, 3.0, 4.0)):
        job.norms(rank, 4, norm, 2.0)
    assert whole(job) == (pytest.approx(5.0), 2.0)


def test_parts_without_sum_have_no_norm() -> None:
    job = shards((3, 3))
    for rank in range(2):
        job.norms(rank, 4, 1.0, 2.0)
    assert whole(job) == (None, 2.0)


def test_without_rank_norm_of_whole_is_unknown() -> None:
    job = shards((2, 1, 1))
    for rank in range(3):
        job.norms(rank, 4, 1.0, 2.0)
    assert whole(job)[0] == pytest.approx(math.sqrt(3))
    job.leave(2, "its process is gone")
    for rank in range(2):
        job.norms(rank, 8, 1.0, 2.0)
    assert job.job.whole.step == 4


def test_non_finite_gradient_of_rank_counts_for_all() -> None:
    job = shards((2, 2))
    job.norms(0, 4, 1.0, 2.0)
    job.norms(1, 4, math.nan, 2.0)
    found = whole(job)[0]
    assert found is not None
    assert math.isnan(found)


def test_new_models_begin_anew() -> None:
    job = shards((2, 2))
    for rank in range(2):
        job.norms(rank, 4, 1.0, 2.0)
    job.event(0, sharded(2))
    assert job.job.whole.norms is None
    assert not len(job.job.whole.total)


# What is shown


def test_part_is_shown_until_ranks_have_measured() -> None:
    job = shards((2, 2))
    job.norms(0, 4, 3.0, 0.0)
    shown = shown_norms(job.state)
    assert (shown.norms, shown.step, shown.is_part) == ((3.0, 0.0), 4, True)
    job.norms(1, 4, 4.0, 0.0)
    shown = shown_norms(job.state)
    assert (shown.norms, shown.step, shown.is_part) == ((5.0, 0.0), 4, False)
    assert (shown.total.values, shown.history.steps) == ([5.0], [4])
    # The step after it: the whole of the step before stays until it is too old.
    job.norms(0, 8, 6.0, 0.0)
    assert shown_norms(job.state).step == 4
    for step in (12, 16):
        job.norms(0, step, 6.0, 0.0)
        assert not shown_norms(job.state).is_part
    job.norms(0, 20, 6.0, 0.0)
    shown = shown_norms(job.state)
    assert (shown.norms, shown.step, shown.is_part) == ((6.0, 0.0), 20, True)


def test_a_rank_that_holds_everything_has_no_part() -> None:
    job = shards((COUNT, COUNT))
    job.norms(0, 4, 3.0, 1.0)
    assert not job.state.tree.is_sharded
    assert not shown_norms(job.state).is_part


def test_norms_without_job_are_of_parts() -> None:
    job = Job(1, joined=())
    job.join(0, sharded(2))
    job.norms(0, 4, 3.0, 1.0)
    job.state.job = None
    assert shown_norms(job.state).is_part
