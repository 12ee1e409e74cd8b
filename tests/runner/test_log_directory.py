"""Where a run's log lies, and which logs of earlier runs are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from terminal_session import ROOT

from gradtui.runner.log_directory import LOGS_KEPT, lock_while_open, new_log, prune


def test_new_log_is_private_and_named_after_the_script(tmp_path: Path) -> None:
    log = new_log("my [odd] näme.v2.py", {"XDG_STATE_HOME": str(tmp_path)})
    assert log.parent == tmp_path / "gradtui"
    assert log.name.startswith("my_odd_näme.v2-")
    assert log.name.endswith(f"-{os.getpid()}.log")
    assert log.stat().st_mode & 0o077 == 0
    assert new_log("pack.part", {"XDG_STATE_HOME": str(tmp_path)}).name.startswith("pack.part-")


def test_new_log_elsewhere_where_the_state_directory_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    log = new_log("train.py", {"XDG_STATE_HOME": str(tmp_path / "file")})
    assert log.parent == tmp_path
    assert log.name.startswith("train-")
    assert log.read_bytes() == b""


def logs(directory: Path, count: int) -> list[Path]:
    """Logs of earlier runs, the oldest first."""
    directory.mkdir(exist_ok=True)
    made = [directory / f"train-20260101-{number:06}-{number}.log" for number in range(count)]
    for number, path in enumerate(made):
        path.write_text("output")
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    return made


def test_a_new_log_makes_room_among_the_oldest(tmp_path: Path) -> None:
    earlier = logs(tmp_path / "gradtui", LOGS_KEPT + 5)
    kept = tmp_path / "gradtui" / "notes-of-mine.log"
    kept.write_text("no log of ours")
    os.utime(kept, (1, 1))
    log = new_log("train.py", {"XDG_STATE_HOME": str(tmp_path)})
    assert set(log.parent.iterdir()) == {log, kept, *earlier[-(LOGS_KEPT - 1) :]}


def test_a_log_stays_while_any_process_has_it_open(tmp_path: Path) -> None:
    oldest, older, newest = logs(tmp_path, 3)
    descriptor = os.open(oldest, os.O_WRONLY | os.O_APPEND)
    lock_while_open(descriptor)
    os.set_inheritable(descriptor, True)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    os.close(descriptor)
    try:
        prune(tmp_path, keep=newest, count=1)
        assert set(tmp_path.iterdir()) == {oldest, newest}
    finally:
        child.communicate()
    prune(tmp_path, keep=newest, count=1)
    assert set(tmp_path.iterdir()) == {newest}
    assert not older.exists()


def test_the_capture_locks_its_log(tmp_path: Path) -> None:
    live, newest = logs(tmp_path, 2)
    program = """
import sys
from pathlib import Path
from gradtui.runner.log_directory import prune
from gradtui.runner.output_capture import OutputCapture
live, newest = map(Path, sys.argv[1:])
capture = OutputCapture(live)
capture.start()
prune(live.parent, keep=newest, count=1)
print(live.exists(), flush=True)
capture.stop(notice=False)
"""
    words = [sys.executable, "-c", program, str(live), str(newest)]
    subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=60)
    assert live.read_text() == "outputTrue\n"


def test_what_cannot_be_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, newest = logs(tmp_path, 3)
    unlink = Path.unlink

    def refused(path: Path) -> None:
        if path == second:
            raise PermissionError(path)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refused)
    prune(tmp_path, keep=newest, count=1)
    assert set(tmp_path.iterdir()) == {second, newest}
    assert not first.exists()
    prune(tmp_path / "nowhere", keep=newest)
