"""One dashboard per terminal: who has it, when it is free again, and files that are not to be trusted."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.terminal_session import ROOT

from gradtui.runner.terminal_lock import TerminalLock

CLAIM = """
import os, sys
from gradtui.runner.terminal_lock import TerminalLock
lock = TerminalLock(int(sys.argv[1]), {"XDG_RUNTIME_DIR": sys.argv[2]})
print(lock.acquire("train.py"), flush=True)
if os.fork() == 0:
    sys.stdin.readline()  # a process of the script's that outlives the run
    os._exit(0)
signal = sys.stdin.readline()
"""


@pytest.fixture
def terminals() -> Iterator[list[int]]:
    opened = [pty.openpty() for _ in range(2)]
    yield [slave for _, slave in opened]
    for ends in opened:
        for end in ends:
            os.close(end)


@pytest.fixture
def other(terminals: list[int], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, with the dashboard on the first terminal."""
    command = [sys.executable, "-c", CLAIM, str(terminals[0]), str(tmp_path)]
    with subprocess.Popen(
        command, pass_fds=terminals, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        yield process
        process.kill()


def lock(terminal: int, directory: Path) -> TerminalLock:
    return TerminalLock(terminal, {"XDG_RUNTIME_DIR": str(directory)})


def test_second_one_is_told_who_has_terminal(
    other: subprocess.Popen[str], terminals: list[int], tmp_path: Path
) -> None:
    assert lock(terminals[0], tmp_path).acquire("other.py") == f"process {other.pid} (train.py)"
    assert lock(terminals[1], tmp_path).acquire("other.py") is None, "another terminal"
    files = sorted(tmp_path.glob("*.lock"))
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_process_that_is_killed_leaves_terminal_free(
    other: subprocess.Popen[str], terminals: list[int], tmp_path: Path
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert lock(terminals[0], tmp_path).acquire("other.py") is None


def test_a_terminal_is_free_once_it_is_released(terminals: list[int], tmp_path: Path) -> None:
    ours = lock(terminals[0], tmp_path)
    assert ours.acquire("train.py") is None
    ours.release()
    ours.release()
    command = [sys.executable, "-c", CLAIM, str(terminals[0]), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        command, pass_fds=terminals, input="\n\n", capture_output=True, text=True, env=env, check=True
    )
    assert found.stdout == "None\n"


def test_no_file_is_left_at_the_end(terminals: list[int], tmp_path: Path) -> None:
    ours = lock(terminals[0], tmp_path)
    assert ours.acquire("train.py") is None
    assert len(list(tmp_path.iterdir())) == 1
    ours.release()
    assert list(tmp_path.iterdir()) == []


def test_file_of_killed_run_is_removed_next(other: subprocess.Popen[str], terminals: list[int], tmp_path: Path) -> None:
    (tmp_path / "gradtui-terminal-notes").touch()
    ours = lock(terminals[1], tmp_path)
    assert ours.acquire("train.py") is None
    assert len(list(tmp_path.glob("*.lock"))) == 2, "the other one runs"
    ours.release()
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert ours.acquire("train.py") is None
    assert [str(path) for path in tmp_path.glob("*.lock")] == [ours._path]
    ours.release()
    assert [path.name for path in tmp_path.iterdir()] == ["gradtui-terminal-notes"]


def test_file_removed_before_lock_is_made_anew(
    terminals: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, original, removed = lock(terminals[0], tmp_path), fcntl.lockf, []

    def lockf(descriptor: int, flags: int) -> None:
        if not removed:
            removed.append(os.unlink(ours._path))
        original(descriptor, flags)

    monkeypatch.setattr("fcntl.lockf", lockf)
    assert ours.acquire("train.py") is None
    assert removed
    assert Path(ours._path).read_text() == f"process {os.getpid()} (train.py)"
    ours.release()


def test_link_is_not_followed_and_harmless(terminals: list[int], tmp_path: Path) -> None:
    ours = lock(terminals[0], tmp_path)
    target = tmp_path / "precious"
    target.write_text("kept")
    os.symlink(target, ours._path)
    assert ours.acquire("train.py") is None
    ours.release()
    assert target.read_text() == "kept"


def test_a_fifo_in_its_place_blocks_nothing(terminals: list[int], tmp_path: Path) -> None:
    ours = lock(terminals[0], tmp_path)
    os.mkfifo(ours._path)
    assert ours.acquire("train.py") is None


def test_without_runtime_directory_file_lies_with_temporary_ones(
    terminals: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = TerminalLock(terminals[0], {"XDG_RUNTIME_DIR": "relative"})
    assert ours.acquire("train.py") is None
    (made,) = tmp_path.glob("*.lock")
    assert made.name.startswith(f"gradtui-{os.geteuid()}-")
    ours.release()
