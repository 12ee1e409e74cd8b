"""What is imported before the first paint, which a person waits for, and what comes later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

OTHERS = ("torch", "numpy", "plotext", "tomllib", "tomli")
"""Packages that nothing on the screen needs."""
LATER = (
    "gradtui.tui.explanations.explanations",
    "gradtui.tui.requests.freeze_choice",
    "gradtui.tui.plots.settings", "gradtui.tui.plots.curves", "gradtui.tui.plots.depth", "gradtui.tui.plots.histogram",
    "gradtui.tui.plots.layers", "gradtui.tui.plots.norms", "gradtui.tui.plots.ratios",
    "gradtui.tui.charts.braille", "gradtui.tui.charts.plot_client", "gradtui.tui.charts.plotter",
    "gradtui.tui.charts.sanitise", "gradtui.tui.requests.questions", "gradtui.tui.screens.detail_dialogs",
    "gradtui.tui.screens.form", "gradtui.tui.screens.freeze", "gradtui.tui.screens.help", "gradtui.tui.screens.leave",
    "gradtui.tui.screens.output", "gradtui.tui.screens.plots",
)  # fmt: skip
"""Modules of ours that are imported when a dialog or a plot is opened."""

CODE = """
import asyncio, importlib, json, sys
import gradtui.command_line.cli, gradtui.launch.run, gradtui.launch.screen_run
import gradtui.runner.supervisor, gradtui.tui.charts.plot_server
from gradtui.tui.app.app import GradtuiApp

class Ends:
    dropped = 0
    def drain(self, limit): return []
    def seen(self, events): pass
    def submit(self, make): return make(1)

async def first_paint():
    app = GradtuiApp(Ends(), Ends(), refresh_hz=0)
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        assert "Starting the script" in app.dashboard.tree_view.text

asyncio.run(first_paint())
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps([sorted(before), sorted(set(sys.modules) - before)]))
"""


@pytest.fixture(scope="module")
def imported() -> tuple[set[str], set[str]]:
    """Modules at the first paint, and those that came with `LATER`, in a fresh interpreter."""
    command = [sys.executable, "-c", CODE, *LATER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    before, more = json.loads(done.stdout)
    return set(before), set(more)


def test_first_paint_waits_for_nothing_unshown(imported: tuple[set[str], set[str]]) -> None:
    before, more = imported
    assert not before & {*OTHERS, *LATER}
    assert set(LATER) <= more


def test_later_parts_need_nothing_replaceable_by_script(imported: tuple[set[str], set[str]]) -> None:
    """By then the script's folder is first on the path: a file of the script's called like a standard module would be found."""
    assert {name.partition(".")[0] for name in imported[1]} <= {"gradtui", "textual", "rich"}
