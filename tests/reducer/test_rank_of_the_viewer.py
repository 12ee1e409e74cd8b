"""The state of a viewer whose process is a rank itself: its events are those of the run, and of its rank."""

from __future__ import annotations

from helpers.events import progress, rank_joined
from helpers.jobs import Job, model
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply


def family() -> Job:
    """Rank 0, which has trained three steps before it knew of the job, and rank 1."""
    job = Job(2, joined=())
    for event in (model(), progress(3, 3), ev.ProcessGroupFound(1.0, 0, 0, 2, "gloo"), rank_joined(0, is_viewers=True)):
        apply(job.state, event)
    job.join(1)
    return job


def check(step: int, **values: object) -> ev.ReplicasMeasured:
    usual = {"trainable": "11", "owned": "11", "rates": ((0.1,),), "checksums": (step, step), "listing": 1}
    return ev.ReplicasMeasured(1.0, step, **{**usual, **values})  # type: ignore[arg-type]


def test_knowledge_of_run_passes_to_rank() -> None:
    job = family()
    own, other = job.job.ranks[0], job.job.ranks[1]
    assert (own.step, own.micro_steps, own.backend, own.listing, own.phase) == (3, 3, "gloo", 1, Phase.LOAD)
    assert (own.outline, own.parameters, own.buffers) == (other.outline, other.parameters, other.buffers)
    assert own.outline == other.outline
    assert (job.state.step, len(job.state.tree.parameters), job.job.shown, job.job.own) == (3, 2, 0, 0)


def test_events_are_of_run_and_rank() -> None:
    job = family()
    apply(job.state, progress(4))
    job.progress(1, 9)
    assert (job.state.step, job.job.ranks[0].step, job.job.ranks[1].step) == (4, 4, 9)
    assert job.job.ranks[0].heard_at == 4.0
    assert job.job.ranks[0].micro_steps == 4
    apply(job.state, ev.RunEnded(9.0, 5, 3, "it failed"))
    assert job.job.ranks[0].ended == job.state.ended
    assert [each.rank for each in job.job.live] == [1]


def test_it_is_compared_with_the_others() -> None:
    job = family()
    apply(job.state, check(16))
    job.check(1, 16, checksums=(16, 16))
    assert job.job.equal_steps["checksums"] == 16
    job.check(1, 32, checksums=(32, 32), trainable="10")
    apply(job.state, check(32))
    divergence = job.divergence("trainable")
    assert (divergence.equal_step, divergence.step, divergence.names) == (16, 32, ("a.bias",))


def test_no_other_rank_is_shown_in_its_place() -> None:
    job = Job(2, joined=())
    for event in (model(), progress(3, 3), rank_joined(1, is_viewers=True), rank_joined(0)):
        apply(job.state, event)
    assert (job.job.shown, job.state.step) == (1, 3)
    job.progress(0, 8)
    assert job.state.step == 3


def test_children_replace_process_without_rank() -> None:
    state = state_after(model(), progress(3, 3), rank_joined(1))
    assert state.step == 0
    assert state.tree.parameters == ()
    apply(state, ev.RankEvent(2.0, 7, 1, 0, progress(7)))
    assert state.step == 7
