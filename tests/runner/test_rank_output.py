"""A rank writes to a log of its own only where its output goes to the log of its launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.terminal_session import ROOT

from gradtui.transport.rank_logs import directory_of, make_directory

RANK = """
import os, sys
from gradtui.runner.rank_output import use_own_log
use_own_log(os.environ)
print("out")
print("err", file=sys.stderr)
os.system("echo child")
os._exit(0)  # without a flush
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    made = tmp_path / "run.log"
    made.touch()
    assert make_directory(str(made))
    return made


def run(stdout: Path, stderr: Path, **environ: str) -> None:
    with stdout.open("ab") as out, stderr.open("ab") as err:
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
        subprocess.run([sys.executable, "-c", RANK], stdout=out, stderr=err, env=env, check=True, timeout=60)


def log_of_rank(log: Path, rank: int = 1) -> str:
    path = Path(directory_of(str(log))) / f"{rank}.log"
    return path.read_text() if path.exists() else ""


def test_both_descriptors_go_to_log_of_rank(log: Path) -> None:
    run(log, log, GRADTUI_OUTPUT=str(log), RANK="1")
    assert log_of_rank(log) == "out\nerr\nchild\n"
    assert log.read_text() == ""
    assert (Path(directory_of(str(log))) / "1.log").stat().st_mode & 0o077 == 0


def test_what_a_launcher_sends_elsewhere_stays_there(log: Path, tmp_path: Path) -> None:
    run(tmp_path / "redirected", log, GRADTUI_OUTPUT=str(log), RANK="1")
    assert log_of_rank(log) == "err\n"
    assert "child\n" in (tmp_path / "redirected").read_text()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "1"},
        {"GRADTUI_OUTPUT": "LOG"},
        {"GRADTUI_OUTPUT": "/nowhere", "RANK": "1"},
        {"GRADTUI_OUTPUT": "LOG", "RANK": "../x"},
    ],
)
def test_without_a_log_or_a_number_nothing_changes(log: Path, environ: dict[str, str]) -> None:
    run(log, log, **{name: value.replace("LOG", str(log)) for name, value in environ.items()})
    assert "err\n" in log.read_text()
    assert os.listdir(directory_of(str(log))) == []


def test_unopenable_log_leaves_output_alone(log: Path) -> None:
    (Path(directory_of(str(log))) / "1.log").symlink_to("elsewhere")
    run(log, log, GRADTUI_OUTPUT=str(log), RANK="1")
    assert "err\n" in log.read_text()
