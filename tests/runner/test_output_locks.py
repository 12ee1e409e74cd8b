"""One run at a time writes to a recording, a summary or a log: the second does without, and trains on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.live_training import gradtui, training
from helpers.terminal_session import ROOT

from gradtui.configuration.settings import Settings, Target
from gradtui.runner.output_locks import release_files, with_own_files

CLAIM = """
import os, sys
from pathlib import Path
from gradtui.runner.output_locks import with_own_files
from gradtui.configuration.settings import Settings, Target
settings = Settings(Target("train.py", None), **{sys.argv[1]: Path(sys.argv[2])})
with_own_files(settings, print)
print("claimed", flush=True)
if os.fork() == 0:
    sys.stdin.readline()  # a process of the script's that outlives the run
    os._exit(0)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    yield
    release_files()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, whose recording is `run.jsonl`. It has forked one more, and other directories for its files."""
    elsewhere = {name: str(tmp_path) for name in ("TMPDIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM, "record", "run.jsonl"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, **elsewhere, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


def claimed(**files: Path) -> tuple[Settings, list[str]]:
    """Return the settings of a run that wants these files, and the lines about those that it does not get."""
    lines: list[str] = []
    return with_own_files(Settings(Target("other.py", None), **files), lines.append), lines  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["record", "summary", "log"])
@pytest.mark.parametrize("way", ["absolute", "relative", "link", "linked directory"])
def test_the_second_run_does_without_the_file(
    other: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.jsonl").touch()
    (tmp_path / "link").symlink_to("run.jsonl")
    (tmp_path / "folder").symlink_to(".")
    paths = {"relative": "run.jsonl", "link": "link", "linked directory": "folder/run.jsonl"}
    path = Path(paths.get(way, tmp_path / "run.jsonl"))
    settings, lines = claimed(**{name: path})
    assert getattr(settings, name) is None
    (line,) = lines
    assert line.startswith(f"{path} is written by process {other.pid} (train.py); ")


def test_killed_run_leaves_file_free(other: subprocess.Popen[str], tmp_path: Path) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    settings, lines = claimed(record=tmp_path / "run.jsonl")
    assert (settings.record, lines) == (tmp_path / "run.jsonl", [])


def test_other_files_are_free(other: subprocess.Popen[str], tmp_path: Path) -> None:
    assert other.poll() is None
    (tmp_path / "new").mkdir()
    _, lines = claimed(record=tmp_path / "new" / "run.jsonl", summary=tmp_path / "run.json")
    assert lines == []


def test_file_survives_reading_and_replacement(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{}")
    claimed(summary=path)
    assert path.read_text() == "{}"
    os.replace(path, tmp_path / "old")
    command = [sys.executable, "-c", CLAIM, "summary", str(path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for expected in (
        f"{path} is written by process {os.getpid()} (other.py); no summary is written\nclaimed\n",
        "claimed\n",
    ):
        found = subprocess.run(command, input="\n\n", capture_output=True, text=True, env=env, check=True)
        assert found.stdout == expected
        release_files()


def test_two_files_of_one_run_are_not_same(tmp_path: Path) -> None:
    settings, lines = claimed(record=tmp_path / "a", summary=tmp_path / "a")
    assert (settings.record, settings.summary) == (tmp_path / "a", None)
    assert lines == [f"{tmp_path / 'a'} is written by this run as its record; no summary is written"]


def test_devices_and_pipes_have_no_owner(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path(os.devnull), tmp_path / "missing" / "file"):
        settings, lines = claimed(summary=path, log=path)
        assert (settings.summary, settings.log, lines) == (path, path, [])


def test_recording_and_summary_are_those_of_first_run(tmp_path: Path) -> None:
    files = ("--record", "run.jsonl", "--summary", "run.json")
    (tmp_path / "short.py").write_text("print(2.0)\n")
    with training(tmp_path, *files):
        second = gradtui(tmp_path, "--plain", *files, "short.py")
    assert (second.returncode, second.stdout) == (0, "2.0\n")
    assert "run.jsonl is written by process" in second.stderr
    assert "run.json is written by process" in second.stderr
    assert '"script": "train.py"' in (tmp_path / "run.json").read_text()
    recorded = (tmp_path / "run.jsonl").read_text()
    assert recorded.count("gradtui_recording") == recorded.count('["RunEnded"') == 1
    assert "short.py" not in recorded
