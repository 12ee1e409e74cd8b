"""The summary that is on disk while the run goes on."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gradtui.protocol.run_summary import RunSummary
from gradtui.records.export import summary, summary_file
from gradtui.records.export.summary import summarise, write
from gradtui.records.export.summary_file import SummaryFile
from gradtui.run.state.run_state import RunState


def of(steps: int) -> RunSummary:
    return replace(summarise(RunState(), dropped=0), steps=steps)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_it_is_renewed_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    answers: list[RunSummary | Exception | None] = [None, ValueError("torn"), of(1), of(2)]
    asked = threading.Semaphore(0)

    def summarise() -> RunSummary | None:
        asked.release()
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    file = SummaryFile(path, summarise, renew_s=0.001)
    file.start()
    until(lambda: path.exists() and json.loads(path.read_text())["steps"] == 2)
    file.stop()
    answers[0] = of(3)
    while asked.acquire(blocking=False):
        pass
    assert not asked.acquire(timeout=0.05)
    assert json.loads(path.read_text())["steps"] == 2
    assert list(tmp_path.iterdir()) == [path]


def test_name_too_long_ends_no_run(tmp_path: Path) -> None:
    file = SummaryFile(tmp_path / ("a" * 300), lambda: None)
    file.start()
    file.stop()
    with pytest.raises(OSError, match="too long"):
        file.conclude(of(1))


def test_slow_writing_is_followed_by_long_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    times = iter([10.0, 10.5, 20.0, 20.0001])
    monkeypatch.setattr("gradtui.records.export.summary_file.monotonic", lambda: next(times))

    class Stop:
        def wait(self, pause: float) -> bool:
            pauses.append(pause)
            return len(pauses) == 3

        def is_set(self) -> bool:
            return False

    file = SummaryFile(tmp_path / "summary.json", lambda: of(1), renew_s=5.0)
    file._stop = Stop()  # type: ignore[assignment]
    file._run()
    assert pauses == [5.0, 50.0, 5.0]


def test_a_place_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    asked = threading.Semaphore(0)

    def summarise() -> RunSummary:
        asked.release()
        return of(1)

    file = SummaryFile(tmp_path / "nowhere" / "summary.json", summarise, renew_s=0.001)
    file.start()
    assert all(asked.acquire(timeout=20) for _ in range(3))
    file.stop()


def test_temporary_file_is_new_and_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may write to the directory has put a link in its place."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda count: "known")
    (tmp_path / ".s.json.known").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write(of(1), tmp_path / "s.json")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "s.json").exists()


def test_writing_that_outlasts_run_never_replaces_closing_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: what the thread has begun to write is complete only after the closing summary."""
    path = tmp_path / "summary.json"
    is_writing, may_go_on = threading.Event(), threading.Event()
    encoded = summary._encoded

    def slow(given: RunSummary) -> bytes:
        if given.steps == 1:
            is_writing.set()
            assert may_go_on.wait(20)
        return encoded(given)

    monkeypatch.setattr(summary, "_encoded", slow)
    monkeypatch.setattr(summary_file, "_WAIT_S", 0.0)
    file = SummaryFile(path, lambda: of(1), renew_s=0.001)
    file.start()
    assert is_writing.wait(20)
    file.stop()
    file.conclude(of(2))
    may_go_on.set()
    file._thread.join(20)
    assert json.loads(path.read_text())["steps"] == 2
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_gets_closing_summary_only(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = SummaryFile(pipe, lambda: of(1), renew_s=0.0)
    file.start()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file.stop()
    file.conclude(of(2))
    with os.fdopen(reader, encoding="utf-8") as stream:
        assert json.load(stream)["steps"] == 2
