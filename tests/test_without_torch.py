"""Viewing needs no torch: where it cannot be imported, in child processes either, each viewing subcommand does its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.fakes import coop_run
from helpers.recordings import record

from gradtui.protocol import events as ev

ROOT = Path(__file__).parent.parent
VIEWING = (
    "replay --plain --summary summary.json run.jsonl",
    "report --format md -o report.md run.jsonl",
    "report -o report.html run.jsonl",
    "compare run.jsonl run.jsonl",
    "compare run.jsonl summary.json",
    "export run.jsonl --csv tables --trace trace.json",
    "runs",
    "runs --json",
    "explain GT204",
    "rules",
    "config",
    "doctor",
    "check --help",
    "try --help",
    "forecast --help",
    "attach --help",
    "do --help",
)
_CODE = """
import asyncio, contextlib, io, json, sys
from pathlib import Path
from gradtui.command_line.cli import parse

codes = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            parse(words.split())
        except SystemExit as end:
            codes[words] = [end.code, said.getvalue()]

import gradtui.launch.attach_screen
from gradtui.configuration.in_force import configuration
from gradtui.configuration.sources import SETTINGS
from gradtui.launch.replay.screen import app_of
from gradtui.records.recording import Recording

async def look():
    app = app_of(Recording(Path("run.jsonl")), configuration(None, dict.fromkeys(each.name for each in SETTINGS), {}))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        return bool(app.screen.children)

codes["replay"] = [0 if asyncio.run(look()) else 1, ""]
assert not any(name == "torch" or name.startswith("torch.") for name, module in sys.modules.items() if module)
print(json.dumps(codes))
"""


@pytest.fixture
def recorded_folder(tmp_path: Path) -> Path:
    record(tmp_path / "run.jsonl", [*coop_run(120), ev.RunEnded(9.0, 120, 0, None)], script="coop_like.py")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    return tmp_path


def _without_torch(recorded_folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(recorded_folder / "hidden"), str(ROOT)]),
        "XDG_RUNTIME_DIR": str(recorded_folder),
    }
    return subprocess.run(
        [sys.executable, *words], cwd=recorded_folder, env=environ, capture_output=True, text=True, check=False
    )


def test_each_viewing_command_works(recorded_folder: Path) -> None:
    done = _without_torch(recorded_folder, "-c", _CODE, json.dumps(VIEWING))
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert {words: said for words, (code, said) in codes.items() if code} == {}
    assert len(codes) == len(VIEWING) + 1
    assert (recorded_folder / "report.html").stat().st_size > 10_000
    assert (recorded_folder / "summary.json").exists()


def test_a_script_without_torch_runs_as_ever(recorded_folder: Path) -> None:
    (recorded_folder / "train.py").write_text("print('here')\nimport torch\n")
    done = _without_torch(recorded_folder, "-m", "gradtui", "check", "train.py")
    plain = _without_torch(recorded_folder, "train.py")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (1, "here\n")
    first, *_ = done.stderr.splitlines()
    assert first.startswith("gradtui: the Python that runs gradtui")
    assert plain.stderr in done.stderr
