"""What other processes see of a run, and what they send it: in one process, over real sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.events import rank_joined
from helpers.fakes import coop_run
from helpers.listening import address
from helpers.served_training import Training, received

from gradtui.configuration.in_force import configuration
from gradtui.configuration.sources import SETTINGS
from gradtui.launch.attach_screen import AttachedRun, app_of
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Pause, SetTrainable
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.records.report.recorded_run import run_of
from gradtui.remote.live.client import result_of
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.run.state.snapshot import snapshot
from gradtui.run.text.effects import effect_text
from gradtui.run.text.html import run_html
from gradtui.tui.panels.changes import changes_lines

EVENTS = coop_run(120)
MIB = 1 << 20


def test_late_viewer_has_state_and_events(training: Training) -> None:
    training.emit(*EVENTS[:300])
    run = AttachedRun(address(training.directory, training.server))
    assert snapshot(run.state) == snapshot(training.reporter.state)
    training.emit(*EVENTS[300:], ev.RunEnded(9.0, 120, 0, None))
    training.end()
    found = received(run)
    assert [each for each in found if not isinstance(each, ev.RulesRun)] == [
        *EVENTS[300:],
        ev.RunEnded(9.0, 120, 0, None),
    ]
    assert (run.has_ended, run.trouble) == (True, None)
    run.close()


def test_a_status_says_how_old_its_values_are(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gradtui.remote.live.answers.monotonic", lambda: now)
    assert training.ask("status")["step_age"] is None
    training.emit(*EVENTS[:300])
    assert training.ask("status")["step_age"] == 0.0
    now = 142.0
    # The sampler's thread goes on while the training is stopped.
    training.emit(*(each for each in EVENTS if isinstance(each, ev.DeviceSampled)))
    assert training.ask("status")["step_age"] == 42.0
    training.emit(*EVENTS[300:])
    assert training.ask("status")["step_age"] == 0.0


def test_a_status_names_the_ranks_that_are_silent(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gradtui.remote.live.answers.monotonic", lambda: now)
    step = next(each for each in EVENTS if isinstance(each, ev.Progress) and each.steps)
    training.emit(rank_joined(0), rank_joined(1))
    training.emit(*(ev.RankEvent(2.0, 0, rank, 0, replace(step, at=2.0)) for rank in range(2)))
    status = training.ask("status")
    assert (status["step_age"], status["silent_ranks"]) == (0.0, [])
    now = 130.0
    training.emit(ev.RankEvent(32.0, 0, 1, 0, replace(step, at=32.0)), ev.RanksHeard(32.0, 0, ((0, 30.0), (1, 0.0))))
    status = training.ask("status")
    assert (status["step_age"], status["silent_ranks"]) == (30.0, [{"rank": 0, "seconds": 30.0}])


def test_same_sizes_of_one_freeze_are_told_everywhere(training: Training) -> None:
    # Without the bytes from before training, as the screen counts memory.
    before, freeze = 500 * MIB, SetTrainable(7, "ctx", False, origin="test")
    effect = Effect(StepMemory(30, None, before + 48 * MIB, None), StepMemory(41, None, before + 36 * MIB, None))
    taken = ev.ReceiptTaken(5.0, 42, 7, f"froze ctx: {effect_text(effect)}", True, effect)
    assert taken.text.startswith("froze ctx: memory ")
    training.emit(*EVENTS)
    training.reporter.look(lambda state: setattr(state, "held_since_load", before))
    cursor = training.ask("tail")["newest"]
    training.emit(ev.CommandApplied(4.0, 40, freeze, "froze ctx: 1 tensor", (0,), is_measured=True), taken)
    said = "froze ctx: memory at the end of backward 48.0 → 36.0 MiB"
    where = address(training.directory, training.server)
    assert result_of(where, {"id": 7, "cursor": cursor})["receipt"]["text"] == said
    state = training.reporter.state
    assert state.log[-1].text == said
    brief = "48.0 → 36.0 MiB"
    assert brief in run_html(state)
    assert brief in "".join(text for line in changes_lines(state, 120, 4) for text, _ in line)
    (entry,) = run_of(state).summary.changes
    assert [result.endswith("48.0 → 36.0 MiB") for result in entry.results] == [True]


def test_several_viewers_see_same_independently(training: Training) -> None:
    training.emit(*EVENTS[:50])
    first, second, third = (AttachedRun(address(training.directory, training.server)) for _ in range(3))
    assert len({first.first_id, second.first_id, third.first_id}) == 3
    second.close()
    training.emit(*EVENTS[50:])
    training.end()
    assert received(first) == received(third) != []
    first.close()
    third.close()


def test_a_viewer_hears_that_the_process_is_gone(training: Training) -> None:
    run = AttachedRun(address(training.directory, training.server))
    training.end()
    (said,) = received(run)
    assert isinstance(said, ev.EventsEnded)
    assert said.reason == run.trouble
    assert "is gone" in run.trouble
    run.close()


def test_commands_arrive_with_id_and_name(training: Training) -> None:
    run = AttachedRun(address(training.directory, training.server))
    made = run.commands.submit(lambda number: SetTrainable(number, "ctx", False))
    run._send(made)
    sent = training.commands.take()
    assert sent == made == SetTrainable(run.first_id, "ctx", False)
    assert sent.origin == made.origin
    assert made.origin.startswith("keyboard of process ")
    run.close()


def test_run_without_commands_says_so(place: Path) -> None:
    training = Training(place, writable=False)
    run = AttachedRun(address(place, training.server))
    run._send(run.commands.submit(Pause))
    (refused,) = run.events.drain()
    assert isinstance(refused, ev.CommandRejected)
    assert "--read-only" in refused.reason
    run.close()
    training.end()


async def test_dashboard_of_viewer_explains_first_row_at_once(training: Training) -> None:
    training.emit(*EVENTS)
    run = AttachedRun(address(training.directory, training.server))
    app = app_of(run, configuration(None, {setting.name: None for setting in SETTINGS}, {}))
    app._hz = 0
    async with app.run_test(size=(120, 36)) as pilot:
        app.pump()
        await pilot.pause()
        assert app.dashboard.why.row == app.dashboard.tree_view.current == 0
        await pilot.press("p")
        await pilot.press("q", "l")
    assert app.return_value == "leave"
    assert [each.reason for each in app.run_state.pending.values() if isinstance(each, Pause)] == [""]
    run.close()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({}, "command is an object"),
        ({"command": {"command": "freze", "path": "a"}, "client": "x"}, "did you mean freeze"),
        ({"command": {"command": "freeze"}, "client": "x"}, "freeze needs path"),
        ({"command": {"command": "freeze", "path": 3}, "client": "x"}, "path of freeze is a text"),
        ({"command": {"command": "pause"}}, "client is a name"),
        ({"command": {"command": "pause"}, "client": " "}, "client is a name"),
        ({"command": {"command": "pause"}, "client": "x", "id": 3}, "id is a whole number"),
        (
            {"command": {"command": "set_group", "optimizer": 0, "group": 0}, "client": "x"},
            "neither a learning rate nor",
        ),
    ],
)
def test_no_command_is_refused_in_one_line(training: Training, request_: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoAnswerError, match=reason):
        training.ask("do", **request_)
    assert training.commands.take() is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"command": "freeze", "path": "text_encoder.block.0"}, "did you mean text_encoder.blocks.0"),
        ({"command": "train_only", "selection": ":heads"}, "did you mean :head"),
        ({"command": "set_checkpointing", "path": "text_encoder.blcks.0", "on": True}, "no module or parameter"),
        ({"command": "set_mode", "path": "nothing", "training": True}, "no module or parameter"),
        ({"command": "trace_gradient", "path": "ctxt"}, "did you mean ctx"),
    ],
)
def test_command_that_names_nothing_is_refused_at_once(training: Training, words: dict[str, Any], reason: str) -> None:
    early = training.ask("do", command=words, client="me")
    assert "refused" not in early, "before a model is found it may name something"
    assert training.commands.take() is not None
    training.emit(*EVENTS)
    answer = training.ask("do", command=words, client="me")
    assert reason in answer["refused"]
    assert training.commands.take() is None
    assert result_of(address(training.directory, training.server), answer) == answer


def test_run_with_left_screen_takes_commands(training: Training) -> None:
    training.commands.close()
    sent = training.ask("do", command={"command": "pause"}, client="me")
    assert training.commands.closed is False
    assert training.commands.take() == Pause(sent["id"])


def test_every_event_after_a_cursor_arrives_once(training: Training) -> None:
    facts = [ev.PauseChanged(float(number), number, number % 2 == 0) for number in range(1, 31)]
    training.emit(*facts[:20])
    seen: list[float] = []
    cursor = 0
    for more in (facts[20:25], facts[25:], []):
        with Client(address(training.directory, training.server)) as client:
            first = client.ask("tail", since=cursor)
            assert first["lost"] == 0
            for row in map(json.loads, client.lines()):
                if isinstance(row, dict) and "cursor" in row:
                    cursor = row["cursor"]
                elif isinstance(row, list) and row[0] == "PauseChanged":
                    seen.append(row[1])
        training.emit(*more)
    assert seen == [each.at for each in facts]


def test_events_that_are_no_longer_there_are_counted(training: Training) -> None:
    for number in range(10_050):
        training.live._keep([ev.PauseChanged(0.0, number, True)])
    with Client(address(training.directory, training.server)) as client:
        assert client.ask("tail", since=20) == {"newest": 10_050, "lost": 30}


def test_a_negative_cursor_is_refused(training: Training) -> None:
    with pytest.raises(NoAnswerError, match="since is a whole number"):
        training.ask("tail", since=-1)


def test_origin_stands_in_schedule_and_is_read_again() -> None:
    from gradtui.protocol.schedule import Scheduled, read, to_table

    command = replace(SetTrainable(3, "ctx", False), origin="an agent")
    table = to_table(Scheduled(7, command))
    assert table == {"step": 7, "command": "freeze", "path": "ctx", "origin": "an agent"}
    (entry,) = read({"do": [table]})
    assert entry.command.origin == "an agent"


def test_a_parameter_is_explained_to_programs(training: Training) -> None:
    training.emit(*EVENTS)
    info = training.reporter.look(lambda state: state.tree.parameters[0])
    short, full = training.ask("why", path=info.path), training.ask("why", path=info.path, all=True)
    assert short["path"] == info.path
    assert short == {name: value for name, value in full.items() if name != "page"}
    assert {"state", "tensor", "optimizer", "gradient"} <= {each["label"] for each in full["page"]}
    for path, reason in (("no.such", "there is no module or parameter"), (3, "path is the path")):
        with pytest.raises(NoAnswerError, match=reason):
            training.ask("why", path=path)
