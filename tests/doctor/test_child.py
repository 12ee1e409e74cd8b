"""Processes that answer, hang, crash and chatter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradtui.command_line.doctor.child import Child

PATIENCE_S = 60.0


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Child]]:
    """Starts a process whose `main` has this code."""
    started: list[Child] = []
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def start(code: str) -> Child:
        lines = "\n".join(f"    {line}" for line in code.splitlines())
        (tmp_path / "asked_of.py").write_text(
            f"from gradtui.command_line.doctor.child import tell\ndef main():\n{lines}\n"
        )
        started.append(Child("asked_of"))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def test_the_answers_come_one_by_one(child: Callable[[str], Child]) -> None:
    asked = child("tell([{'a': 1}, {'b': None}])")
    assert list(asked.answers(PATIENCE_S)) == [{"a": 1}, {"b": None}]
    assert asked.trouble == ""


def test_what_a_library_prints_is_no_answer(child: Callable[[str], Child]) -> None:
    asked = child("def told():\n    print('WARNING', flush=True)\n    yield {'a': 1}\ntell(told())")
    assert list(asked.answers(PATIENCE_S)) == [{"a": 1}]


def test_a_process_that_hangs_costs_a_moment(child: Callable[[str], Child]) -> None:
    asked = child("import time\ndef told():\n    yield {'a': 1}\n    time.sleep(600)\ntell(told())")
    assert asked.answer(PATIENCE_S) == {"a": 1}
    assert asked.answer(0.05) is None
    assert asked.trouble == "no answer within 0.05 s"
    assert asked.answer(PATIENCE_S) is None


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "the process that asked was killed by SIGSEGV"),
        ("raise SystemExit(3)", "the process that asked ended with exit code 3"),
        ("raise RuntimeError('x')", "the process that asked ended with exit code 1"),
    ],
    ids=["signal", "exit", "raise"],
)
def test_a_process_that_crashes(child: Callable[[str], Child], code: str, trouble: str) -> None:
    asked = child(code)
    assert asked.answer(PATIENCE_S) is None
    assert asked.trouble == trouble


@pytest.mark.parametrize("line", ["no json", "[1]", "3"])
def test_an_answer_that_is_none(child: Callable[[str], Child], line: str) -> None:
    asked = child(f"print({line!r}, flush=True)")
    assert asked.answer(PATIENCE_S) is None
    assert asked.trouble == "an answer that cannot be read"


def test_file_in_current_directory_is_not_imported(
    child: Callable[[str], Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(folder)
    assert child("tell([{'a': 1}])").answer(PATIENCE_S) == {"a": 1}
