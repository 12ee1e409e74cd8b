"""Files of a run: where they lie, who can read them, that half of one never stays, and which old ones are removed."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import BinaryIO

import pytest
from helpers.programs import run_program

from gradtui.system.run_files import (
    LOGS_KEPT,
    OOM_REPORTS_KEPT,
    SCHEDULES_KEPT,
    RunFiles,
    lock_while_open,
    prune,
)


def test_files_are_private_and_named_after_run(tmp_path: Path) -> None:
    files = RunFiles("my train.py", {"XDG_STATE_HOME": str(tmp_path)})
    first = Path(files.write("out-of-memory", ".txt", lambda file: file.write(b"one")))
    second = Path(files.write("allocator", ".pickle", lambda file: file.write(b"two")))
    assert first.parent == second.parent == tmp_path / "gradtui"
    assert first.name.startswith("my_train-")
    assert first.name.endswith(f"-{os.getpid()}-out-of-memory-1.txt")
    assert second.name.endswith(f"-{os.getpid()}-allocator-2.pickle")
    schedule = files.write("schedule", ".toml", lambda file: file.write(b"three"))
    pair = [schedule, files.write_beside(schedule, ".py", lambda file: file.write(b"four"))]
    assert [path.partition("-schedule-")[2] for path in pair] == ["3.toml", "3.py"]
    assert [Path(path).read_bytes() for path in pair] == [b"three", b"four"]
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
    assert first.stat().st_mode & 0o077 == 0


def test_elsewhere_where_the_state_directory_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path / "file")})
    assert Path(files.write("out-of-memory", ".txt", lambda file: file.write(b"x"))).parent == tmp_path


def test_half_a_file_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write("out-of-memory", ".txt", half)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_unwritable_directory_gives_first_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.gettempdir", none)
    with pytest.raises(NotADirectoryError):
        RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path / "file")}).write(
            "out-of-memory", ".txt", lambda file: None
        )


def test_old_schedules_go_and_saved_ones_stay(tmp_path: Path) -> None:
    directory = tmp_path / "gradtui"
    directory.mkdir()
    saved = ["train-20260101-000000-1-saved-schedule-1.toml", "train-20260101-000000-1-saved-schedule-1.py"]
    runs = [f"train-20260101-000000-{number}-schedule-1" for number in range(SCHEDULES_KEPT + 3)]
    for age, run in enumerate([*saved, *runs]):
        for name in [run] if run in saved else [f"{run}.toml", f"{run}.py"]:
            (directory / name).write_text("")
            os.utime(directory / name, (1_000_000 + age, 1_000_000 + age))
    files = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)})
    schedule = files.write("schedule", ".toml", lambda file: None)
    new = [schedule, files.write_beside(schedule, ".py", lambda file: None)]
    left = {path.name for path in directory.iterdir()}
    assert left == {
        *saved,
        *map(os.path.basename, new),
        *(f"{run}{suffix}" for run in runs[4:] for suffix in (".toml", ".py")),
    }


def test_old_black_boxes_alone_give_way(tmp_path: Path) -> None:
    directory = tmp_path / "gradtui"
    directory.mkdir()
    names = [f"train-20260101-000000-{number}-out-of-memory-1.txt" for number in range(OOM_REPORTS_KEPT + 3)]
    others = ["train-20260101-000000-1-allocator-1.pickle", "notes-out-of-memory-1.txt"]
    for age, name in enumerate([*others, *names]):
        (directory / name).write_text("")
        os.utime(directory / name, (1_000_000 + age, 1_000_000 + age))
    new = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write("out-of-memory", ".txt", lambda file: None)
    left = {path.name for path in directory.iterdir()}
    assert left == {*others, *names[4:], os.path.basename(new)}


def test_new_log_is_private_and_named_after_script(tmp_path: Path) -> None:
    log = RunFiles("my [odd] näme.v2.py", {"XDG_STATE_HOME": str(tmp_path)}).new_log()
    assert log.parent == tmp_path / "gradtui"
    assert log.name.startswith("my_odd_näme.v2-")
    assert log.name.endswith(f"-{os.getpid()}.log")
    assert log.stat().st_mode & 0o077 == 0
    assert RunFiles("pack.part", {"XDG_STATE_HOME": str(tmp_path)}).new_log().name.startswith("pack.part-")


def test_log_elsewhere_where_state_directory_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    log = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path / "file")}).new_log()
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
    log = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).new_log()
    assert set(log.parent.iterdir()) == {log, kept, *earlier[-(LOGS_KEPT - 1) :]}


def test_log_stays_while_any_process_has_it_open(tmp_path: Path) -> None:
    oldest, older, *newest = logs(tmp_path, LOGS_KEPT + 2)
    descriptor = os.open(oldest, os.O_WRONLY | os.O_APPEND)
    lock_while_open(descriptor)
    os.set_inheritable(descriptor, True)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    os.close(descriptor)
    try:
        prune(tmp_path)
        assert set(tmp_path.iterdir()) == {oldest, *newest}
    finally:
        child.communicate()
    prune(tmp_path)
    assert set(tmp_path.iterdir()) == {*newest}
    assert not older.exists()


def test_the_capture_locks_its_log(tmp_path: Path) -> None:
    live, *_ = logs(tmp_path, LOGS_KEPT + 1)
    program = """
import sys
from pathlib import Path
from gradtui.runner.output_capture import OutputCapture
from gradtui.system.run_files import prune
live = Path(sys.argv[1])
capture = OutputCapture(live)
capture.start()
prune(live.parent)
print(live.exists(), flush=True)
capture.stop(notice=False)
"""
    run_program(program, live)
    assert live.read_text() == "outputTrue\n"


def test_what_cannot_be_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *newest = logs(tmp_path, LOGS_KEPT + 2)
    unlink = Path.unlink

    def refused(path: Path) -> None:
        if path == second:
            raise PermissionError(path)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refused)
    prune(tmp_path)
    assert set(tmp_path.iterdir()) == {second, *newest}
    assert not first.exists()
    prune(tmp_path / "nowhere")


def test_rank_logs_go_with_launcher_log(tmp_path: Path) -> None:
    stem = "train-20260101-120000-"
    for number in (1, 2, 3):
        (tmp_path / f"{stem}{number}.log.ranks").mkdir()
        (tmp_path / f"{stem}{number}.log.ranks" / "0.log").touch()
    (tmp_path / f"{stem}1.log").touch()
    (tmp_path / "notes.log.ranks").mkdir()
    with (tmp_path / f"{stem}2.log.ranks" / "0.log").open("ab") as written:
        lock_while_open(written.fileno())
        prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "notes.log.ranks",
        f"{stem}1.log",
        f"{stem}1.log.ranks",
        f"{stem}2.log.ranks",
    ]
