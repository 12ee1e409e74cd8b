"""GT605: models that differ, and ranks that have executed different numbers of steps."""

from __future__ import annotations

from jobs import Job, model
from scripted_run import match, matches

from gradtui.run.state.findings import Level


def test_models_with_other_parameters() -> None:
    job = Job(2, joined=())
    job.join(0)
    job.join(1, model("a.weight", "a.scale"))
    job.check_all(1)
    found = match("GT605", job.state)
    assert found.message == (
        "the models differ in a.bias, a.scale between ranks 0 and 1 since step 1, the first compared"
    )
    assert (found.key, found.level) == ("models", None)


def test_models_of_ranks_that_share_nothing_are_noted() -> None:
    """As the stages of a pipeline."""
    job = Job(2, joined=())
    job.join(0)
    job.join(1, model("a.scale"))
    job.check(0, 1, checksums=(None, None))
    job.check(1, 1, trainable="1", owned="1", checksums=(None,))
    assert match("GT605", job.state).level is Level.NOTE


def test_a_rank_that_ends_after_fewer_steps() -> None:
    job = Job(3)
    for rank in range(3):
        job.progress(rank, 90)
    job.end(1, 90)
    # The others may end there too.
    assert matches("GT605", job.state) == []
    job.progress(2, 91)
    found = match("GT605", job.state)
    assert found.message == "rank 1 ended after 90 steps, and others have executed 91 steps"
    assert (found.key, found.first_step, found.evidence) == ("steps", 90, {"ranks": "1", "steps": 90, "most_steps": 91})
    job.end(0, 95)
    job.end(2, 100)
    assert (
        match("GT605", job.state).message == "ranks 0, 1 ended after 90 to 95 steps, and others have executed 100 steps"
    )


def test_a_rank_that_fails_is_no_matter_of_steps() -> None:
    job = Job(2)
    job.progress(0, 90)
    job.end(1, 50, 1)
    job.end(0, 90)
    assert matches("GT605", job.state) == []
