"""Where a CUDA device's memory goes, asked for on the memory panel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from helpers.app_session import session
from helpers.fakes import GIB, MIB, RecordingSink, ScriptedSource, coop_run, device_sample
from helpers.lines import line_text
from textual.pilot import Pilot

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.screens.detail_dialogs import DeviceDialog, StepDialog
from gradtui.tui.screens.text_dialog import DialogLines

SAMPLE = device_sample()


def text(dialog: DeviceDialog) -> str:
    return "\n".join(line_text(line) for line in dialog._lines(80))


async def test_enter_on_memory_panel_explains_it() -> None:
    async with session((120, 36), [*coop_run(20), SAMPLE]) as run:
        run.dashboard.memory.focus()
        await run.press("enter")
        dialog = run.app.screen
        assert isinstance(dialog, DeviceDialog)
        assert "14.0 GiB" in text(dialog)
        await run.put(dataclasses.replace(SAMPLE, device_process=15 * GIB - 100 * MIB))
        assert "14.9 GiB" in text(dialog)
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_without_device_enter_explains_memory_within_step() -> None:
    async with session((120, 36)) as run:
        run.dashboard.memory.focus()
        await run.press("enter")
        dialog = run.app.screen
        assert isinstance(dialog, StepDialog)
        assert "Profile a step's memory" in " ".join(dialog.query_one(DialogLines).text.split())
        assert run.sink.submitted == [], "nothing is asked of the run"
        modules = len(run.app.run_state.tree.modules)
        await run.put(
            ev.StepMemoryProfiled(
                2.0, 41, (100, 300, 200), 3, ((Phase.FORWARD, 0), (Phase.BACKWARD, 1)), 300, Phase.BACKWARD, -1,
                (Holding("other", -1, 300, 0),), (None,) * modules, True,
            )
        )  # fmt: skip
        assert "at its highest, in backward" in dialog.query_one(DialogLines).text


def test_what_it_looks_like(snap_compare: Callable[..., bool]) -> None:
    app = GradtuiApp(ScriptedSource([*coop_run(40), SAMPLE]), RecordingSink(), log=None, refresh_hz=0)

    async def ask(pilot: Pilot[str]) -> None:
        await pilot.pause()
        app.pump()
        app.dashboard.memory.focus()
        await pilot.press("enter")
        await pilot.pause()

    assert snap_compare(app, terminal_size=(160, 50), run_before=ask)
