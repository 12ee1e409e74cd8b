"""GT602: a parameter that only some ranks have in an optimizer."""

from __future__ import annotations

import pytest
from jobs import Job
from scripted_run import match

from gradtui.run.diagnostics import FindingTracker


def test_a_parameter_that_the_optimizer_of_one_rank_lacks() -> None:
    job = Job(2)
    job.check_all(1, but=1, owned="10")
    found = match("GT602", job.state)
    assert found.message == (
        "whether optimizers have a.bias differs between ranks 0 and 1 since step 1, the first compared: "
        "in an optimizer on rank 0, in none on rank 1"
    )
    assert (found.paths, found.first_step, found.explains) == (("a.bias",), 1, None)


@pytest.mark.parametrize(("diverged", "explains"), [(16, frozenset({"GT603"})), (32, None)])
def test_it_explains_no_values_that_differed_before(diverged: int, explains: frozenset[str] | None) -> None:
    job = Job(2)
    for step in (16, 32):
        job.check(0, step)
        wrong = {"checksums": (0, 0)} if step >= diverged else {}
        job.check(1, step, **wrong, owned="10" if step == 32 else "11")
    assert match("GT602", job.state).explains == explains


def test_a_group_that_one_rank_lacks_is_explained() -> None:
    job = Job(2)
    job.check_all(1, but=1, owned="10", rates=((0.1, 0.2),), checksums=(10, 0))
    FindingTracker().run(job.state)
    assert [(each.rule, each.explains) for each in job.state.findings] == [("GT602", ("GT603", "GT604"))]
