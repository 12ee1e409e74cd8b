"""Files of a run: where they lie, who can read them, and that half of one never stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from gradtui.runner.run_files import BOXES_KEPT, SCHEDULES_KEPT, RunFiles


def test_files_are_private_numbered_and_named_after_run_and_kind(tmp_path: Path) -> None:
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


def test_where_no_directory_can_be_written_the_first_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.gettempdir", none)
    with pytest.raises(NotADirectoryError):
        RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path / "file")}).write(
            "out-of-memory", ".txt", lambda file: None
        )


def test_old_schedules_give_way_with_their_code_and_saved_ones_stay(tmp_path: Path) -> None:
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


def test_old_black_boxes_give_way_and_nothing_else_does(tmp_path: Path) -> None:
    directory = tmp_path / "gradtui"
    directory.mkdir()
    names = [f"train-20260101-000000-{number}-out-of-memory-1.txt" for number in range(BOXES_KEPT + 3)]
    others = ["train-20260101-000000-1-allocator-1.pickle", "notes-out-of-memory-1.txt"]
    for age, name in enumerate([*others, *names]):
        (directory / name).write_text("")
        os.utime(directory / name, (1_000_000 + age, 1_000_000 + age))
    new = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write("out-of-memory", ".txt", lambda file: None)
    left = {path.name for path in directory.iterdir()}
    assert left == {*others, *names[4:], os.path.basename(new)}
