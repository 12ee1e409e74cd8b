"""The output of ranks as one text: order, labels, lines that change, files of others, and a bound for each poll."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from gradtui.transport.log_tail import MAX_READ, LogTail
from gradtui.transport.rank_logs import MAX_RANKS, JobTail, directory_of, last_job_lines, make_directory, open_log


class Logs:
    """The logs of a job."""

    def __init__(self, directory: Path) -> None:
        self.log = str(directory / "run.log")
        Path(self.log).touch()
        assert make_directory(self.log)

    def write(self, rank: int | None, text: str) -> None:
        descriptor = open_log(self.log, rank) if rank is not None else os.open(self.log, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, text.encode())
        os.close(descriptor)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def texts(tail: JobTail) -> list[str]:
    tail.poll()
    return [f"{line.label}{line.text}" for line in tail.lines]


def test_lines_have_rank_and_reading_order(logs: Logs) -> None:
    tail = JobTail(LogTail(logs.log))
    logs.write(None, "starts\n")
    assert texts(tail) == ["starts"]
    logs.write(1, "one\n")
    assert texts(tail) == ["starts", "[1] one"]
    logs.write(0, "zero\n")
    logs.write(None, "ends\n")
    assert texts(tail) == ["starts", "[1] one", "ends", "[0] zero"]
    assert tail.ranks == [0, 1]
    assert [line.text for line in tail.lines_of(1)] == ["one"]
    assert tail.lines_of(7) == []
    assert [line.text for line in tail.last_lines(2)] == ["ends", "zero"]
    assert not tail.poll()


def test_changing_line_stays_at_end_until_over(logs: Logs) -> None:
    tail = JobTail(LogTail(logs.log))
    logs.write(0, "\r10%")
    logs.write(1, "a\nb")
    assert texts(tail) == ["[1] a", "[0] 10%", "[1] b"]
    logs.write(0, "\r20%")
    assert texts(tail) == ["[1] a", "[0] 20%", "[1] b"]
    logs.write(0, "\r30%\nnext\n")
    assert texts(tail) == ["[1] a", "[0] 30%", "[0] next", "[1] b"]


def test_nested_progress_bars_are_rewritten_in_place(logs: Logs) -> None:
    tail = JobTail(LogTail(logs.log))
    logs.write(0, "outer 1\n\rinner 1\x1b[A")
    assert texts(tail) == ["[0] outer 1", "[0] inner 1"]
    logs.write(0, "\n\rinner 2\x1b[A\router 2")
    assert texts(tail) == ["[0] outer 2", "[0] inner 2"]


def test_what_earlier_run_has_written_is_left_out(logs: Logs) -> None:
    logs.write(0, "older\n")
    tail = JobTail(LogTail(logs.log))
    logs.write(0, "newer\n")
    assert texts(tail) == ["[0] newer"]
    assert texts(JobTail(LogTail(logs.log), is_new=False)) == ["[0] older", "[0] newer"]


def test_lines_are_given_once(logs: Logs) -> None:
    tail = JobTail(LogTail(logs.log))
    logs.write(0, "shown\n")
    tail.poll()
    tail.skip()
    logs.write(0, "fresh\nhalf")
    tail.poll()
    assert [line.text for line in tail.new_lines()] == ["fresh"]
    assert [line.text for line in tail.new_lines(all_of_them=True)] == ["half"]


def test_files_of_others_are_no_logs_of_ranks(logs: Logs, tmp_path: Path) -> None:
    directory = Path(directory_of(logs.log))
    (tmp_path / "secret").write_text("secret\n")
    (directory / "3.log").symlink_to(tmp_path / "secret")
    os.mkfifo(directory / "4.log")
    (directory / "5.log").mkdir()
    for name in ("-1.log", "01.log", "12345678.log", "x.log", "٣.log", "1.log.txt"):
        (directory / name).write_text("no\n")
    assert texts(JobTail(LogTail(logs.log), is_new=False)) == []
    with pytest.raises(OSError, match="symbolic links"):
        open_log(logs.log, 3)


def test_directory_that_others_can_enter_is_not_used(logs: Logs) -> None:
    directory = directory_of(logs.log)
    assert make_directory(logs.log)
    os.chmod(directory, 0o755)
    assert not make_directory(logs.log)
    os.rmdir(directory)
    Path(directory).write_text("")
    assert not make_directory(logs.log)


def test_a_poll_reads_no_more_for_many_ranks(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = 64
    for rank in range(ranks):
        logs.write(rank, "x" * 99 + "\n")
    tail = JobTail(LogTail(logs.log))
    for rank in range(ranks):
        logs.write(rank, ("y" * 99 + "\n") * 2000)
    read = 0
    original = os.pread

    def counted(descriptor: int, count: int, offset: int) -> bytes:
        nonlocal read
        data = original(descriptor, count, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    tail.poll()
    assert read <= MAX_READ + ranks * 1024
    assert sum("bytes not shown" in line.text for line in tail.lines) == ranks
    assert ranks <= MAX_RANKS


def test_random_writes_keep_order_of_ranks(logs: Logs) -> None:
    choose = random.Random(0)
    tail = JobTail(LogTail(logs.log))
    written: dict[int, list[str]] = {rank: [] for rank in range(3)}
    given: list[str] = []
    for number in range(300):
        rank = choose.randrange(3)
        written[rank].append(f"line {number}")
        logs.write(rank, f"line {number}\n")
        if choose.random() < 0.3:
            tail.poll()
            given += [f"{line.rank} {line.text}" for line in tail.new_lines()]
    tail.poll()
    given += [f"{line.rank} {line.text}" for line in tail.new_lines(all_of_them=True)]
    for rank, lines in written.items():
        assert [line for line in given if line.startswith(f"{rank} ")] == [f"{rank} {line}" for line in lines]
    assert len(given) == 300


def test_last_rank_lines_precede_launcher_lines(logs: Logs) -> None:
    logs.write(None, "".join(f"launcher {number}\n" for number in range(50)))
    assert last_job_lines(logs.log, 2) == ["launcher 48", "launcher 49"]
    for rank in range(2):
        logs.write(rank, "".join(f"line {number}\n" for number in range(50)))
    lines = last_job_lines(logs.log, 9)
    assert lines == [
        *(f"[{rank}] line {n}" for rank in range(2) for n in (47, 48, 49)),
        *(f"launcher {n}" for n in (47, 48, 49)),
    ]
    assert last_job_lines("/nowhere/at/all", 5) == []
