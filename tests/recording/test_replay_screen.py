"""The dashboard of a recording: it shows what the live one has shown, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.fakes import coop_run
from helpers.programs import run_program
from helpers.recordings import record

from gradtui.configuration.in_force import configuration
from gradtui.configuration.sources import SETTINGS
from gradtui.launch.replay.player import REFUSAL, ReplayPlayer
from gradtui.launch.replay.screen import RecordedRun, app_of
from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable, Watch
from gradtui.records.recording import Recording
from gradtui.run.state.selectors import RunStatus, run_status
from gradtui.transport.in_process import CommandQueue, EventQueue
from gradtui.tui.actions import actions_here, footer_actions
from gradtui.tui.app.app import GradtuiApp

EVENTS = [*coop_run(120), ev.RunEnded(9.0, 120, 0, None)]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(record(tmp_path / "run.jsonl", EVENTS, script="coop_like.py"))


def test_a_long_recording_is_read_in_pieces(recording: Recording) -> None:
    player = ReplayPlayer(recording)
    pieces = [player.drain(100) for _ in range(len(EVENTS) // 100 + 2)]
    assert [event for piece in pieces for event in piece] == EVENTS
    assert max(map(len, pieces)) == 100
    assert pieces[-1] == []


def test_command_is_refused_without_watch(recording: Recording) -> None:
    player = ReplayPlayer(recording)
    sink = RecordedRun(player)
    while not player.is_loaded:
        player.drain(10_000)
    sink.submit(lambda number: Watch(number, ("ctx",)))
    made = sink.submit(lambda number: SetTrainable(number, "ctx", False))
    (refused,) = player.drain()
    assert refused == ev.CommandRejected(9.0, 120, made, REFUSAL)


async def test_keys_move_and_screen_shows_each_place(recording: Recording) -> None:
    app = app_of(recording, configuration(None, {setting.name: None for setting in SETTINGS} | {"pin": "val/loss"}, {}))
    app._hz = 0
    async with app.run_test(size=(120, 36)) as pilot:

        async def press(*keys: str) -> str:
            await pilot.press(*keys)
            app.pump()
            await pilot.pause()
            return "".join(segment.text for segment in app.dashboard.query_one("#time").render_line(0))

        app.pump()
        app.pump()
        assert "120/120" in await press("escape")
        assert "119/120" in await press("comma")
        assert app.run_state.step == 119
        assert app.run_state.metrics.pinned == "val/loss"
        assert app.run_state.ended is None
        assert "  0/120" in await press("0")
        assert app.run_state.tree.parameters == ()
        assert " 1/120" in await press("full_stop")
        assert "50/120" in await press("G", "5", "0", "enter")
        assert app.run_state.step == 50
        assert "2×" in await press("greater_than_sign")
        assert "▶" in await press("space")
        assert "‖" in await press("p")
        assert "120/120" in await press("dollar_sign")
        assert app.run_state.ended is not None
        help = await press("question_mark")
        assert "120/120" in help
        assert "Play or pause" in "".join(
            segment.text for line in app.screen._compositor.render_strips() for segment in line
        )
        await press("escape", "q")
    assert app.return_value == "ended"


async def test_live_run_has_no_time_bar(recording: Recording) -> None:
    live = GradtuiApp(EventQueue(), CommandQueue())
    live._hz = 0
    async with live.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert not live.dashboard.query("#time")
        assert not [action for action in footer_actions() if action.scope == "replay"]
        assert not [action for group in actions_here("tree") for action in group if action.scope == "replay"]


async def test_dashboard_shows_run_and_leaves_at_once(recording: Recording) -> None:
    found = configuration(None, {setting.name: None for setting in SETTINGS}, {})
    app = app_of(recording, found)
    app._hz = 0
    async with app.run_test(size=(120, 36)) as pilot:
        app.pump()
        await pilot.pause()
        assert app.run_state.step == 120
        assert app.run_state.ended is not None
        await pilot.press("escape", "q")
    assert app.return_value == "ended"


@pytest.mark.slow
def test_no_torch_is_needed(recording: Recording) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from gradtui.configuration.in_force import configuration\nfrom gradtui.configuration.sources import SETTINGS\n"
        "from gradtui.records.recording import Recording\n"
        "from gradtui.launch.replay.screen import app_of\n"
        "app = app_of(Recording(Path(sys.argv[1])), configuration(None, {each.name: None for each in SETTINGS}, {}))\n"
        "import asyncio\n"
        "async def run():\n"
        "    async with app.run_test(size=(120, 36)) as pilot:\n"
        "        app.pump()\n"
        "        await pilot.press('escape', 'down', 'enter', 'escape', 'g', 'escape', 'q')\n"
        "asyncio.run(run())\n"
        "print(app.run_state.step)\n"
    )
    assert run_program(code, recording.path).stdout == "120\n"


async def test_cut_recording_does_not_look_running(tmp_path: Path) -> None:
    path = record(tmp_path / "run.jsonl", EVENTS[:-1], script="coop_like.py")
    app = app_of(Recording(path), configuration(None, {setting.name: None for setting in SETTINGS}, {}))
    app._hz = 0
    async with app.run_test(size=(120, 36)) as pilot:
        app.pump()
        app.pump()
        await pilot.pause()
        assert run_status(app.run_state) is RunStatus.OUT_OF_SIGHT
        assert len([entry for entry in app.run_state.log if "ends before" in entry.text]) == 1
        await pilot.press("c")
        assert app.run_state.pending == {}
        await pilot.press("escape", "q")
    assert app.return_value == "ended"
