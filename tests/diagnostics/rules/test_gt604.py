"""GT604: copies of parameters that are not equal any more."""

from __future__ import annotations

from jobs import PATHS, Job
from scripted_run import match, matches


def test_the_parameter_the_ranks_and_the_steps() -> None:
    job = Job(4)
    job.check_all(16)
    job.check_all(32, but=3, checksums=(320, 0))
    found = match("GT604", job.state)
    assert found.message == "values of a.bias differ between rank 3 and the other 3 ranks since a step from 17 to 32"
    assert (found.paths, found.first_step, found.evidence["ranks"]) == (("a.bias",), 32, "3")


def test_copies_that_all_differ_from_each_other() -> None:
    """As where gradients are not averaged."""
    job = Job(3)
    for rank in range(3):
        job.check(rank, 1, checksums=(rank, rank))
    found = match("GT604", job.state)
    assert found.message == "values of a.weight, a.bias differ between all 3 ranks since step 1, the first compared"
    assert found.paths == PATHS


def test_parameters_outside_of_the_wrapper_are_not_compared() -> None:
    job = Job(2)
    for rank in range(2):
        job.check(rank, 16, checksums=(7, None if rank else 3))
    assert matches("GT604", job.state) == []
