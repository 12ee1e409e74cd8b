"""Lines of gradtui below lines that the script has not ended, against the rows that a terminal would show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.system.cursor_line import CursorLine
from gradtui.transport.log_tail import LogTail

UNFINISHED = {
    "nothing": (b"", 0),
    "a whole line": (b"epoch 1\n", 0),
    "a part of a line": (b"loading", 1),
    "a bar": (b"\r 10%\r 20%", 1),
    "a bar, and the cursor at its start": (b"step 1\r", 1),
    "a bar that has been removed": (b"\r 10%\r    \r", 0),
    "a bar that is erased": (b"\r 10%\r\x1b[K", 0),
    "nested bars": (b"\repoch\n\rbatch\x1b[A", 2),
    "three bars": (b"\ra\n\rb\n\rc\x1b[A\x1b[A", 3),
    "an inner bar that has been removed": (b"\repoch\n\rbatch\x1b[A\n\r     \x1b[A\r", 1),
    "colours and a hidden cursor only": (b"\x1b[?25l\x1b[1;31m\x1b[0m\x1b]0;title\x07", 0),
    "rich": (b"\x1b[32mWorking 10%\x1b[0m\n\r\x1b[2K\x1b[1A\x1b[2K\x1b[32mWorking 20%\x1b[0m", 1),
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_line_ends_that_lead_below_what_was_written(name: str) -> None:
    written, line_ends = UNFINISHED[name]
    line = CursorLine()
    line.is_shared = True
    line.note(1, written)
    assert line.take_fresh() == "\n" * line_ends
    assert line.take_fresh() == ""


def test_stdout_matters_only_to_same_file() -> None:
    line = CursorLine()
    line.is_shared = False
    line.note(1, b"unfinished")
    assert line.take_fresh() == ""
    line.note(2, b"unfinished")
    assert line.take_fresh() == "\n"


@given(
    written=st.lists(
        st.sampled_from(["\n", "\r", "\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[2K", "\x1b[31m", "ab", " 10%", "epoch: 3/4"]),
        max_size=25,
    )
)
def test_line_of_gradtui_stands_alone_and_covers_nothing(
    written: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    line = CursorLine()
    path = tmp_path_factory.getbasetemp() / "written.log"
    path.write_text("".join(written), newline="")
    before = [text for text in _rows(path) if text.strip()]
    for piece in written:
        line.note(2, piece.encode())
    with path.open("a", newline="") as file:
        file.write(f"{line.take_fresh()}gradtui: here\n")
    after = [text for text in _rows(path) if text.strip()]
    assert after == [*before, "gradtui: here"]


def _rows(path: Path) -> list[str]:
    tail = LogTail(path)
    tail.poll()
    return list(tail.lines)


_SCRIPT = """
import sys
from gradtui.system.printable import write_line
from gradtui.runner.plain import PlainReporter
from gradtui.runner.standard_streams import note_lines
from gradtui.transport.in_process import EventQueue
from tqdm import tqdm

note_lines()
reporter = PlainReporter(EventQueue())
for epoch in tqdm(range(2), mininterval=0, ncols=40):
    for batch in tqdm(range(2), mininterval=0, ncols=40, position=1, leave=False):
        reporter.say("progress")
print("part of a line", end="", flush=True)
write_line("the end")
"""


def test_lines_stand_between_nested_bars() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    lines = run.stdout.decode().split("\n")
    own = [line for line in lines if "gradtui:" in line]
    assert own == ["gradtui: progress"] * 4 + ["gradtui: the end"]


_STREAMS = """
import sys
from gradtui.system.printable import write_line
from gradtui.runner.standard_streams import note_lines

before = sys.stdout
note_lines()
for stream in (sys.stdout, sys.stderr):
    try:
        stream.write(b"bytes")
    except TypeError as error:
        stream.write(f"{error}\\n")
print("not flushed", end="")
write_line("stands before what stdout still keeps")
sys.stdout.flush()
write_line("stands below")
sys.stderr.buffer.write(b"past the text")
sys.stderr.buffer.flush()
write_line("continues the line")
print(sys.stdout is before)
"""


@pytest.mark.parametrize("is_shared", [True, False], ids=["one pipe", "two pipes"])
def test_the_streams_fail_and_buffer_as_python_s(is_shared: bool) -> None:
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    second = subprocess.STDOUT if is_shared else subprocess.PIPE
    command = [sys.executable, "-c", _STREAMS]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=second, check=True, text=True, env=buffered)
    wrong = "write() argument must be str, not bytes\n"
    early = "gradtui: stands before what stdout still keeps\n"
    if is_shared:
        below = f"{wrong}not flushed\ngradtui: stands below\n"
        assert run.stdout == f"{wrong}{early}{below}past the textgradtui: continues the line\nFalse\n"
    else:
        assert run.stdout == f"{wrong}not flushedTrue\n"
        assert run.stderr == f"{wrong}{early}gradtui: stands below\npast the textgradtui: continues the line\n"


_REPORTED = """
import sys
from gradtui.runner.ending import conclude
from gradtui.runner.plain import PlainReporter
from gradtui.transport.in_process import EventQueue

class Reporter(PlainReporter):
    def _report_log(self):
        self.say("a line")

reporter = Reporter(EventQueue(), drain_s=0.001)
reporter.start()

def hook(kind, error, entries):
    for part in range(40):
        sys.stderr.write(f"{part} ")
        reporter._stop.wait(0.005)
    sys.stderr.write("whole\\n")

sys.excepthook = hook
assert conclude(ValueError("lost")).exit_code == 1
reporter.finish()
"""


def test_no_line_of_gradtui_stands_within_a_traceback() -> None:
    run = subprocess.run([sys.executable, "-c", _REPORTED], capture_output=True, check=True, text=True)
    lines = run.stderr.splitlines()
    assert "".join(f"{part} " for part in range(40)) + "whole" in lines
    assert lines[-1] == "gradtui: a line"


_INTERRUPTED = """
import contextlib
from gradtui.runner import standard_streams

standard_streams.note_lines()

def interrupt(descriptor, data):
    raise KeyboardInterrupt

standard_streams.STDERR_LINE.note = interrupt
for number in range(3):
    with contextlib.suppress(KeyboardInterrupt):
        print(f"epoch {number}", flush=True)
standard_streams.STDERR_LINE.note = lambda descriptor, data: None
"""


def test_interrupt_while_noting_writes_once() -> None:
    command = [sys.executable, "-c", _INTERRUPTED]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    one = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    written = subprocess.run(command, check=True, text=True, env=buffered, **one).stdout
    assert [written.count(f"epoch {number}") for number in range(3)] == [1, 1, 1]
