"""GT606: buffers that nothing keeps equal."""

from __future__ import annotations

from jobs import Job
from scripted_run import match

from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.findings import Level


def test_buffers_that_differ_are_noted() -> None:
    job = Job(2)
    for rank in range(2):
        job.check(rank, 16, buffers=(rank,))
    found = match("GT606", job.state)
    assert found.message == "the buffers a.mean differ between ranks 0 and 1 since step 16, the first compared"
    assert found.paths == ("a.mean",)
    assert rule_named("GT606").level is Level.NOTE
