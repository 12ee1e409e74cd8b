"""The viewer of a job shows one rank: the lowest, or the one that the user chooses, whose state arrives as a snapshot."""

from __future__ import annotations

from dataclasses import fields

import pytest
from helpers.jobs import Job, model
from helpers.metric_events import metrics_logged

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable, ShowRank
from gradtui.protocol.json_text import to_line
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot

REQUEST = 77
OF_THE_JOB = {
    "job", "version", "seconds", "log", "log_count", "started", "ended", "pending", "refused", "interventions",
    "intervention_count", "findings", "tree",
}  # fmt: skip


class Rank:
    """A rank with its own state, which sends what its own viewer has applied to the viewer of the job."""

    def __init__(self, job: Job, rank: int) -> None:
        self._job, self.rank, self.state = job, rank, RunState()
        self.send(model())

    def send(self, event: ev.Event) -> None:
        apply(self.state, event)
        self._job.event(self.rank, event)

    def step(self, number: int) -> None:
        norms = float(number + self.rank), 2.0 * number
        self.send(ev.Progress(1.0, number, 1, 1, 0, (1,), (), 0.0, 1, 1))
        self.send(ev.GradientsMeasured(1.0, number, 3.0 + self.rank, 0.5 * number + self.rank, norms, listing=1))

    def show(self) -> None:
        text = to_line(snapshot(self.state))
        self._job.event(self.rank, ev.RankStateTaken(1.0, self.state.step, REQUEST, text))


def two() -> tuple[Job, Rank, Rank]:
    job = Job(2, joined=())
    for rank in (0, 1):
        job.join(rank)
    return job, Rank(job, 0), Rank(job, 1)


def of_the_rank(state: RunState) -> dict[str, object]:
    value = snapshot(state)["state"]
    names = [each.name for each in fields(RunState)]
    return {name: each for name, each in zip(names, value) if name not in OF_THE_JOB}


def test_chosen_rank_has_state_of_own_viewer() -> None:
    job, lowest, other = two()
    for number in range(1, 5):
        lowest.step(number)
        other.step(number)
    assert job.state.loss.values == [0.5, 1.0, 1.5, 2.0]
    other.show()
    assert (job.job.shown, job.state.loss.values) == (1, [1.5, 2.0, 2.5, 3.0])
    assert of_the_rank(job.state) == of_the_rank(other.state)
    # From now on the events of this rank count, and those of the other only for its record.
    lowest.step(5)
    other.step(5)
    assert job.state.loss.values[-1] == 3.5
    assert job.job.ranks[0].step == 5
    assert of_the_rank(job.state) == of_the_rank(other.state)
    lowest.show()
    assert (job.job.shown, of_the_rank(job.state)) == (0, of_the_rank(lowest.state))


def test_panels_see_a_new_structure() -> None:
    job, _, other = two()
    before = job.state.tree.version
    other.show()
    assert job.state.tree.version > max(before, other.state.tree.version)


def test_what_belongs_to_the_job_stays() -> None:
    job, _, other = two()
    asked, waiting = ShowRank(REQUEST, 1), SetTrainable(REQUEST + 1, "a", False)
    for command in (asked, waiting):
        job.state.note_submitted(command)
    log = [entry.text for entry in job.state.log]
    other.show()
    assert job.state.pending == {waiting.id: waiting}
    assert [entry.text for entry in job.state.log] == [*log, "rank 1 is shown"]
    assert len(job.job.ranks) == 2


def test_acts_on_chosen_rank_are_counted_once() -> None:
    job, lowest, other = two()
    first, second = SetTrainable(1, "a", False), SetTrainable(2, "a", True)
    for rank in (lowest, other):
        rank.send(ev.CommandApplied(1.0, 3, first, "froze a", (0, 1)))
    # The second one has reached the viewer from one rank only, which is not the one that is shown next.
    lowest.send(ev.CommandApplied(1.0, 5, second, "unfroze a", (0, 1)))
    other.show()
    assert [each.command for each in job.state.interventions] == [first]
    other.send(ev.CommandApplied(1.0, 5, second, "unfroze a", (0, 1)))
    assert [each.command for each in job.state.interventions] == [first, second]
    assert job.state.intervention_count == 2
    # And the other way round: the chosen rank is ahead of the one that was shown.
    third = SetTrainable(3, "a", False)
    other.send(ev.CommandApplied(1.0, 7, third, "froze a", (0, 1)))
    lowest.show()
    assert job.state.intervention_count == 2
    lowest.send(ev.CommandApplied(1.0, 7, third, "froze a", (0, 1)))
    assert (len(job.state.interventions), job.state.intervention_count) == (3, 3)


def test_what_was_done_before_a_restart_stays_listed() -> None:
    job, lowest, _ = two()
    command = SetTrainable(1, "a", False)
    lowest.send(ev.CommandApplied(1.0, 3, command, "froze a", (0, 1)))
    job.restart()
    Rank(job, 1).show()
    assert (job.job.shown, job.job.is_chosen) == (1, True)
    assert [each.command for each in job.state.interventions] == [command]
    assert job.state.intervention_count == 1


def test_command_answered_by_chosen_rank_is_over() -> None:
    job, _, other = two()
    command = SetTrainable(5, "a", False)
    job.state.note_submitted(command)
    apply(job.state, ev.CommandProposed(1.0, 0, 9, command, 4))
    other.send(ev.CommandApplied(1.0, 4, command, "froze a", (0, 1)))
    assert job.state.pending
    other.show()
    assert not job.state.pending


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"names":{},"state":[1]}', '{"names":{},"state":7}', "1e999", "[" * 9999]
)
def test_state_that_is_none_leaves_present_one(text: str) -> None:
    job, _, _ = two()
    job.event(1, ev.RankStateTaken(1.0, 0, REQUEST, text))
    assert (job.job.shown, job.job.is_chosen) == (0, False)
    assert job.state.log[-1].text.startswith("cannot show rank 1: ")
    assert len(job.state.tree.parameters) == 2


def test_rejoining_lower_rank_does_not_replace_chosen() -> None:
    job, _, other = two()
    other.show()
    job.join(0)
    assert job.job.shown == 1


def test_after_restart_of_launcher_lowest_rank_is_shown() -> None:
    job, _, other = two()
    other.show()
    job.restart()
    assert (job.job.shown, job.job.is_chosen) == (0, False)


def test_log_says_that_shown_rank_is_gone() -> None:
    job, _, other = two()
    other.show()
    job.leave(1, "its process is gone")
    assert "last state stays" in job.state.log[-1].text
    job.leave(0, "its process is gone")
    assert job.state.log[-1].text == "rank 0: its process is gone"


def test_pinned_metric_stays_when_another_rank_is_shown() -> None:
    job, _, other = two()
    job.state.metrics.pinned = "val/loss"
    other.send(metrics_logged())
    other.show()
    assert job.state.metrics.pinned == "val/loss"
    assert job.state.metrics.by_name["val/loss"].last == 0.45
