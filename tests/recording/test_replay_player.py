"""Any place of a recording shows the state that the live viewer had there, however it was reached."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from helpers.fakes import coop_run
from helpers.recordings import record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradtui.launch.replay import player as replay_player
from gradtui.launch.replay.player import SPEEDS, ReplayPlayer
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Pause, RunSteps, RunTo, SetTrainable, Watch
from gradtui.protocol.events import Event
from gradtui.protocol.json_text import to_line
from gradtui.records.recording import Recording, tracker_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot
from gradtui.run.viewing import view_again

FREEZE = SetTrainable(1, "ctx", False, origin="keyboard")


def run(steps: int = 24) -> list[Event]:
    events = coop_run(steps)
    middle = next(at for at, event in enumerate(events) if isinstance(event, ev.Progress) and event.step >= steps // 2)
    at, step = events[middle].at, events[middle].step
    changed = [ev.CommandApplied(at, step, FREEZE, "froze ctx", (0,)), ev.RulesRun(at, step)]
    return [*events[: middle + 1], *changed, *events[middle + 1 :], ev.RunEnded(events[-1].at + 1, steps, 0, None)]


EVENTS = run()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recording") / "run.jsonl", EVENTS, script="coop_like.py")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Viewer:
    """What the screen does with a player: apply what it gives, and show what it says to show."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.player = ReplayPlayer(Recording(path), self.clock)
        self.state = RunState()
        self.findings = tracker_of(self.player.recording)
        while not self.player.is_loaded:
            self.look()
        self.player.note_marks(self.state)

    def look(self) -> None:
        jump = self.player.take_state()
        self.state = jump if jump is not None else self.state
        for event in self.player.drain():
            view_again(self.state, self.findings, event)

    def play(self, seconds: float) -> None:
        self.look()
        self.clock.now += seconds
        self.look()


@functools.cache
def state_at(path: Path, count: int) -> str:
    """Return the state after so many events, applied from the beginning."""
    recording = Recording(path)
    state, findings = RunState(), tracker_of(recording)
    for event in list(recording.events())[:count]:
        view_again(state, findings, event)
    return to_line(snapshot(state))


def test_opening_shows_the_end(path: Path) -> None:
    viewer = Viewer(path)
    assert (viewer.player.position, viewer.player.step) == (len(EVENTS), 24)
    assert to_line(snapshot(viewer.state)) == state_at(path, len(EVENTS))
    assert viewer.state.ended is not None


MOVES = st.one_of(
    st.tuples(st.just("seek"), st.integers(-5, len(EVENTS) + 5)),
    st.tuples(st.just("seek_step"), st.integers(-2, 30)),
    st.tuples(st.just("move_steps"), st.integers(-9, 9).filter(bool)),
    st.tuples(st.just("move_share"), st.floats(-1, 1)),
    st.tuples(st.just("next_mark"), st.sampled_from((-1, 1))),
    st.tuples(st.just("change_speed"), st.integers(-3, 3)),
    st.tuples(st.just("play"), st.floats(0, 3)),
    st.tuples(st.just("toggle"), st.none()),
)


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(MOVES, max_size=6))
def test_any_way_to_place_gives_same_state(path: Path, moves: list[tuple[str, Any]]) -> None:
    viewer = Viewer(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_player, "_MAX_KEPT", 4)
        viewer.player._spacing = 16
        for name, value in moves:
            if name == "play":
                viewer.play(value)
            else:
                getattr(viewer.player, name)(*(() if value is None else (value,)))
                viewer.look()
        viewer.look()
        assert to_line(snapshot(viewer.state)) == state_at(path, viewer.player.position)
        assert len(viewer.player._kept) <= 5


def test_step_shows_all_that_was_measured_of_it(path: Path) -> None:
    viewer = Viewer(path)
    viewer.player.seek_step(16)
    viewer.look()
    assert viewer.state.step == 16
    later = [event for event in EVENTS if isinstance(event, ev.Progress) and event.step > 16]
    assert EVENTS[viewer.player.position] == later[0]
    viewer.player.move_steps(3)
    viewer.look()
    assert viewer.state.step == 19
    viewer.player.move_steps(-5)
    viewer.look()
    assert viewer.state.step == 14


def test_playing_takes_recorded_time_divided_by_speed(path: Path) -> None:
    viewer = Viewer(path)
    player = viewer.player
    player.seek_step(10)
    viewer.look()
    began = player.seconds
    player.toggle()
    for _ in range(2):
        player.change_speed(1)
    assert player.speed == 4.0
    viewer.play(0.05)
    expected = sum(event.at <= began + 0.2 for event in EVENTS)
    assert player.position == expected > sum(event.at <= began for event in EVENTS)
    player.toggle()
    viewer.play(100)
    assert player.position == expected, "it is paused"


def test_playing_ends_and_begins_again(path: Path) -> None:
    viewer = Viewer(path)
    viewer.player.toggle()
    assert (viewer.player.position, viewer.player.is_playing) == (0, True)
    viewer.play(1e6)
    viewer.play(0.0)
    assert (viewer.player.position, viewer.player.is_playing) == (len(EVENTS), False)
    assert viewer.state.ended is not None


def test_the_speed_has_bounds(path: Path) -> None:
    player = Viewer(path).player
    for by, last in ((-99, SPEEDS[0]), (99, SPEEDS[-1])):
        player.change_speed(by)
        assert player.speed == last


def test_jumps_go_to_findings_and_changes(path: Path) -> None:
    viewer = Viewer(path)
    player = viewer.player
    assert [mark.sign for mark in player.marks].count("◆") == 1
    player.seek(0)
    seen = []
    while (mark := player.next_mark(1)) is not None:
        viewer.look()
        assert mark.text in [entry.text for entry in viewer.state.log]
        seen.append(mark)
    assert [mark.position for mark in seen] == sorted({mark.position for mark in player.marks})
    assert player.next_mark(-1) == (seen[-2] if len(seen) > 1 else None)


def test_live_commands_play_and_others_are_refused(path: Path) -> None:
    viewer = Viewer(path)
    player = viewer.player
    player.submit(RunTo(1, 20))
    viewer.look()
    assert viewer.state.step == 20
    player.submit(RunSteps(2, 2))
    viewer.look()
    assert viewer.state.step == 22
    player.submit(Pause(3))
    assert player.is_playing
    player.submit(Watch(4, ("ctx",)))
    player.submit(FREEZE)
    (refused,) = [event for event in player.drain() if isinstance(event, ev.CommandRejected)]
    assert refused.command == FREEZE


def test_cut_recording_says_so_at_end(tmp_path: Path, path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    viewer = Viewer(cut)
    said = "the recording ends before the run does"
    assert [entry.text for entry in viewer.state.log].count(said) == 1
    viewer.player.seek_step(16)
    viewer.look()
    assert said not in [entry.text for entry in viewer.state.log]
    viewer.player.seek(viewer.player.count)
    viewer.look()
    assert [entry.text for entry in viewer.state.log].count(said) == 1


def test_nothing_moves_while_the_recording_is_read(path: Path) -> None:
    player = ReplayPlayer(Recording(path))
    player.drain(10)
    player.toggle()
    player.seek(3)
    assert (player.position, player.is_playing) == (10, False)
