"""A job whose user chooses another rank: attached viewers, `tail` and a recording follow it."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.events import rank_joined
from helpers.jobs import model
from helpers.listening import address
from helpers.served_training import Training, received
from helpers.summaries import summarised

from gradtui.launch.attach_screen import AttachedRun
from gradtui.protocol import events as ev
from gradtui.protocol.json_text import to_line
from gradtui.records.recording import Recorder, Recording, replayed
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot
from gradtui.run.viewing import view_again

STEPS = 6


class Ranks:
    """Two ranks with states of their own, whose events reach the viewer of the job."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.states = [RunState(), RunState()]
        training.emit(ev.RunStarted(0.0, 0, "train.py", (), 1, "cpu", "cpu ledger", "2.13.0", None))
        for rank in (0, 1):
            training.emit(rank_joined(rank))
            self.send(rank, model())

    def send(self, rank: int, event: ev.Event) -> None:
        apply(self.states[rank], event)
        self.pass_on(rank, event)

    def pass_on(self, rank: int, event: ev.Event) -> None:
        self._training.emit(ev.RankEvent(1.0, event.step, rank, 0, event))

    def step(self, number: int) -> None:
        for rank in (0, 1):
            self.send(rank, ev.Progress(float(number), number, 1, 1, 0, (1,), (), 0.0, 1, 1))
            norms = float(number), 2.0 + rank
            self.send(rank, ev.GradientsMeasured(float(number), number, 3.0, 0.5 * number + rank, norms, listing=1))

    def show(self, rank: int) -> None:
        state = self.states[rank]
        self.pass_on(rank, ev.RankStateTaken(1.0, state.step, 9, to_line(snapshot(state))))


def test_an_attached_viewer_follows_the_choice(training: Training) -> None:
    ranks = Ranks(training)
    ranks.step(1)
    before = AttachedRun(address(training.directory, training.server))
    ranks.show(1)
    ranks.step(2)
    after = AttachedRun(address(training.directory, training.server))
    ranks.step(3)
    ranks.show(0)
    ranks.step(4)
    training.emit(ev.RunEnded(9.0, 4, 0, None))
    training.end()
    for run in (before, after):
        findings = FindingTracker()
        for event in received(run):
            view_again(run.state, findings, event)
        assert (run.state.job.shown, run.state.loss.values) == (0, [0.5, 1.0, 1.5, 2.0])
        assert snapshot(run.state) == snapshot(training.reporter.state)
        run.close()


def test_tail_gives_events_of_rank_that_is_shown(training: Training) -> None:
    ranks = Ranks(training)
    texts = ("first of 0", "first of 1", "second of 0", "second of 1")
    for number, text in enumerate(texts):
        if number == 2:
            ranks.show(1)
        ranks.send(number % 2, ev.ProbeFailed(1.0, number, "part", text, False))
    training.reporter.drain()
    kept = [event for _, event in training.live._history]
    assert [each.error for each in kept if isinstance(each, ev.ProbeFailed)] == ["first of 0", "second of 1"]
    (applied,) = (each for each in kept if isinstance(each, ev.CommandApplied))
    assert (applied.command.id, applied.text) == (9, "rank 1 is shown")
    training.emit(ev.RunEnded(9.0, 4, 0, None))


def test_a_recording_gives_the_summary_of_the_viewer(training: Training, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", {"format": 1}, training.events.put, 1 << 30)
    training.events.follow(recorder.take)
    recorder.start()
    ranks = Ranks(training)
    for number in range(1, STEPS):
        ranks.step(number)
        if number in (2, 4):
            ranks.show(number % 4 // 2)
    training.emit(ev.RunEnded(9.0, STEPS, 0, None))
    state = training.reporter.finish()
    recorder.finish(0)
    restarts: list[bool] = []
    again = replayed(Recording(tmp_path / "run.jsonl"), on_restart=lambda: restarts.append(True))
    # `on_restart` is called for the first rank, and not for a rank that the user chooses.
    assert restarts == [True]
    assert again.job.shown == 0
    assert json.dumps(summarised(again)) == json.dumps(summarised(state))
