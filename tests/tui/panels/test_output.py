from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.jobs import Job
from helpers.lines import line_text

from gradtui.protocol.events import RunEnded
from gradtui.run.reducer import apply
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail, make_directory, open_log
from gradtui.tui.panels.output import OutputPanel, traceback_lines

ERROR = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: bad batch\n'


def test_traceback_ends_with_error_line() -> None:
    lines = traceback_lines(ERROR, ["epoch 1"])
    assert "".join(text for line in lines for text, _ in line) == ERROR.replace("\n", "")
    assert [role for line in lines for _, role in line] == ["text", "text", "error"]


def test_traceback_that_script_printed_is_not_repeated() -> None:
    assert traceback_lines(ERROR, ["epoch 1", *ERROR.splitlines()]) == []


def test_an_error_without_text_shows_nothing() -> None:
    assert traceback_lines("", []) == []


class Sized(OutputPanel):
    """A panel that is not on a screen."""

    def redraw(self) -> None:
        """Nothing to draw on."""


@pytest.fixture
def job(tmp_path: Path) -> tuple[Job, Sized]:
    log = tmp_path / "run.log"
    log.write_text("launcher\n")
    assert make_directory(str(log))
    for rank in range(2):
        with os.fdopen(open_log(str(log), rank), "w") as file:
            file.write(f"line of {rank}\n\repoch:  10%|#    | 1/10 [00:0{rank}<00:09")
    made = Job(2)
    return made, Sized(made.state, JobTail(LogTail(log), is_new=False))


def shown(panel: OutputPanel, width: int = 60, height: int = 30) -> list[str]:
    panel.update()
    return [line_text(line).rstrip() for line in panel.lines_for(width, height)]


def test_job_lines_show_rank_or_alone(job: tuple[Job, Sized]) -> None:
    _, panel = job
    assert shown(panel)[:3] == ["launcher", "[0] line of 0", "[1] line of 1"]
    assert panel.title == "all ranks · o rank 0"
    # Bars of two ranks are not those of nested loops.
    assert [bar.name for bar in panel.bars] == ["epoch"]
    panel.show_next_rank()
    assert shown(panel)[0] == "[0] line of 0"
    assert len(shown(panel)) == 2
    panel.show_next_rank()
    assert (shown(panel)[0], panel.title) == ("[1] line of 1", "rank 1 only · o all ranks")
    panel.show_next_rank()
    assert shown(panel)[0] == "launcher"


def test_long_line_has_rank_on_rows(job: tuple[Job, Sized]) -> None:
    _, panel = job
    assert all(line.startswith("[") for line in shown(panel, width=14, height=20)[1:])


def test_first_error_is_on_top(job: tuple[Job, Sized]) -> None:
    made, panel = job
    made.end(1, 7, 1, ERROR)
    made.end(0, 7, 1, "RuntimeError: connection closed by peer", at=9.5)
    assert shown(panel, height=3)[0] == "rank 1: ValueError: bad batch"
    apply(made.state, RunEnded(10.0, 0, 1, "ChildFailedError:\n====="))
    lines = shown(panel)
    assert lines[0] == "rank 1: ValueError: bad batch"
    assert lines[-5:] == ["── rank 1 failed first ──", *ERROR.splitlines(), "── exit code 1 ──"]
