"""GT603: learning rates that differ, with the rates."""

from __future__ import annotations

import math

import pytest
from jobs import Job
from scripted_run import match, matches

from gradtui.run.diagnostics import FindingTracker


def test_a_group_with_another_rate_on_one_rank() -> None:
    job = Job(2)
    job.check_all(16)
    for rank, rate in ((0, 0.5), (1, 0.05)):
        job.check(rank, 32, rates=((0.1, rate),))
    found = match("GT603", job.state)
    assert found.message == (
        "the learning rate of optimizer 0, group 1 differs between ranks 0 and 1 since a step from 17 to 32: "
        "0.5 on rank 0, 0.05 on rank 1"
    )
    # It concerns all parameters.
    assert (found.paths, found.first_step) == ((), 32)


def test_a_rate_that_is_unknown_does_not_differ() -> None:
    job = Job(2)
    job.check_all(16, but=1, rates=((math.nan,),))
    assert matches("GT603", job.state) == []


@pytest.mark.parametrize(("rates", "values", "expected"), [(16, 32, ["GT603"]), (32, 16, ["GT603", "GT604"])])
def test_values_that_differ_later_follow_from_it(rates: int, values: int, expected: list[str]) -> None:
    job = Job(2)
    for step in (16, 32):
        job.check(0, step)
        wrong = {"checksums": (0, 0)} if step >= values else {}
        job.check(1, step, **wrong, rates=((0.2,),) if step >= rates else ((0.1,),))
    FindingTracker().run(job.state)
    assert [each.rule for each in job.state.findings] == expected
