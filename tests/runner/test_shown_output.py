"""What the terminal shows of the log while the script has it. A pipe is the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradtui.runner.shown_output import _WHY, CONTEXT_LINES, ShownOutput


class Pipe:
    """As much of a terminal as is written to."""

    is_lost = False

    def __init__(self) -> None:
        self._reading, self.descriptor = os.pipe()
        os.set_blocking(self._reading, False)

    def read(self) -> str:
        try:
            return os.read(self._reading, 1 << 16).decode()
        except BlockingIOError:
            return ""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe._reading)
    os.close(pipe.descriptor)


def write(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def test_bytes_are_shown_once_without_typed(log: Path, pipe: Pipe) -> None:
    shown = ShownOutput(log, pipe)  # type: ignore[arg-type]
    write(log, "".join(f"line {number}\n" for number in range(50)) + "\x1b[31mwho? \x1b[0m")
    shown.begin()
    # Of what was printed before, the newest lines; the cursor stays behind the question.
    *lines, last = pipe.read().split("\n")
    assert lines[0] == _WHY.strip()
    assert lines[1:] == [f"line {number}" for number in range(50 - CONTEXT_LINES, 50)]
    assert last == "who? "
    shown.append("me\n")
    write(log, "\x1b[32mhello\x1b[0m\n")
    shown.follow()
    shown.follow()
    # While the script has the terminal, its bytes are its own.
    assert pipe.read() == "\x1b[32mhello\x1b[0m\n"
    assert log.read_text().endswith("who? \x1b[0mme\n\x1b[32mhello\x1b[0m\n")
    write(log, "while the dashboard was there\n")
    shown.begin()
    assert pipe.read() == f"{_WHY}while the dashboard was there\n"
    assert shown.size == log.stat().st_size


def test_of_a_flood_the_newest_lines_are_shown(log: Path, pipe: Pipe) -> None:
    shown = ShownOutput(log, pipe)  # type: ignore[arg-type]
    write(log, "flood\n" * 100_000 + "the end\n")
    shown.follow()
    text = pipe.read()
    assert text.endswith("flood\nthe end\n")
    assert text.count("\n") == CONTEXT_LINES
    assert shown.size == log.stat().st_size


def test_line_that_was_left_open_is_ended_first(log: Path, pipe: Pipe) -> None:
    shown = ShownOutput(log, pipe)  # type: ignore[arg-type]
    shown.begin()
    shown.append("no end")
    shown.begin()
    assert pipe.read() == f"{_WHY}\n{_WHY}"


def test_terminal_or_log_that_is_gone_costs_nothing(log: Path, pipe: Pipe) -> None:
    shown = ShownOutput(log, pipe)  # type: ignore[arg-type]
    log.unlink()
    shown.begin()
    shown.append("typed\n")
    assert pipe.read() == _WHY
    pipe.is_lost = True
    write(log, "text\n")
    shown.follow()
    assert pipe.read() == ""
