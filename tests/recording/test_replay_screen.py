"""The dashboard of a recording: it shows what the live one has shown, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes import coop_run

from gradtui.configuration import SETTINGS, configuration
from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable, Watch
from gradtui.recording import Recorder, Recording
from gradtui.replay_screen import REFUSAL, NoCommands, RecordedEvents, app_of
from gradtui.state.selectors import RunStatus, run_status

EVENTS = [*coop_run(120), ev.RunEnded(9.0, 120, 0, None)]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    recorder = Recorder(tmp_path / "run.jsonl", {"script": "coop_like.py"}, pytest.fail)
    recorder.start()
    recorder.take(EVENTS)
    recorder.finish()
    return Recording(tmp_path / "run.jsonl")


def test_a_long_recording_is_read_in_pieces(recording: Recording) -> None:
    source = RecordedEvents(recording)
    pieces = [source.drain(100) for _ in range(len(EVENTS) // 100 + 2)]
    assert [event for piece in pieces for event in piece] == EVENTS
    assert max(map(len, pieces)) == 100
    assert pieces[-1] == []


def test_a_command_is_refused_and_a_watch_is_nothing_to_refuse(recording: Recording) -> None:
    source = RecordedEvents(recording)
    sink = NoCommands(source)
    source.drain(10_000)
    sink.submit(lambda number: Watch(number, ("ctx",)))
    made = sink.submit(lambda number: SetTrainable(number, "ctx", False))
    (refused,) = source.drain()
    assert refused == ev.CommandRejected(9.0, 120, made, REFUSAL)


async def test_the_dashboard_shows_the_run_and_leaves_at_once(recording: Recording) -> None:
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
        "from gradtui.configuration import SETTINGS, configuration\n"
        "from gradtui.recording import Recording\n"
        "from gradtui.replay_screen import app_of\n"
        "app = app_of(Recording(Path(sys.argv[1])), configuration(None, {each.name: None for each in SETTINGS}, {}))\n"
        "import asyncio\n"
        "async def run():\n"
        "    async with app.run_test(size=(120, 36)) as pilot:\n"
        "        app.pump()\n"
        "        await pilot.press('escape', 'down', 'enter', 'escape', 'g', 'escape', 'q')\n"
        "asyncio.run(run())\n"
        "print(app.run_state.step)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(recording.path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("120\n", 0), done.stderr


async def test_a_recording_that_is_cut_does_not_look_like_a_running_run(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", {"script": "coop_like.py"}, pytest.fail)
    recorder.start()
    recorder.take(EVENTS[:-1])
    recorder.finish()
    app = app_of(
        Recording(tmp_path / "run.jsonl"), configuration(None, {setting.name: None for setting in SETTINGS}, {})
    )
    app._hz = 0
    async with app.run_test(size=(120, 36)) as pilot:
        app.pump()
        app.pump()
        await pilot.pause()
        assert run_status(app.run_state) is RunStatus.OUT_OF_SIGHT
        assert [entry.text for entry in app.run_state.log if "ends before" in entry.text] == [
            "the recording ends before the run does"
        ]
        await pilot.press("space")
        assert app.run_state.pending == {}
        await pilot.press("escape", "q")
    assert app.return_value == "ended"
