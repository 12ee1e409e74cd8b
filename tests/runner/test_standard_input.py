"""A script that wants input and does not get the terminal: the end of the file, and a line that says why."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
from helpers.programs import run_program

from gradtui.runner.output_capture import INPUT_REFUSED

CAPTURED = """\
import os, pdb, sys
from pathlib import Path
from gradtui.runner.output_capture import OutputCapture
from gradtui.runner.script_input import ScriptInput
class Loan:
    def begin(self): return False
capture = OutputCapture(Path(sys.argv[1]))
start = capture.start
def start_both():
    start()
    ScriptInput(capture, Loan()).start()
capture.start = start_both
"""


def run(program: str, log: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    source = CAPTURED + textwrap.dedent(program)
    return run_program(source, log, stdin=stdin, check=False, PYTHONIOENCODING="utf-8")


READS = {
    "input": ("input('name? ')", "EOFError('EOF when reading a line')"),
    "breakpoint": ("breakpoint()", "BdbQuit()"),
    "pdb": ("pdb.set_trace()", "BdbQuit()"),
    "read": ("assert sys.stdin.read() == ''", "None"),
    "readline": ("assert sys.stdin.readline() == ''", "None"),
    "lines": ("assert list(sys.stdin) == []", "None"),
    "bytes": ("assert sys.stdin.buffer.read(4) == b''", "None"),
    "before": ("assert sys.__stdin__.read() == ''", "None"),
}


@pytest.mark.parametrize(("statement", "raised"), READS.values(), ids=READS)
def test_the_end_of_the_file_and_the_reason(tmp_path: Path, statement: str, raised: str) -> None:
    program = f"""
capture.start()
found = None
for _ in range(2):
    try:
        {statement}
        next_line = "where a debugger that was left raises"
    except BaseException as error:
        found = error
capture.stop(notice=False)
print(repr(found), capture.asked_for_input)
"""
    ended = run(program, tmp_path / "log", stdin="typed later\n")
    assert ended.stdout == f"{raised} True\n", ended.stderr
    assert (tmp_path / "log").read_text().count(INPUT_REFUSED) == 1
    assert f"\n{INPUT_REFUSED}" in (tmp_path / "log").read_text()


def test_script_that_asks_for_nothing_is_told_nothing(tmp_path: Path) -> None:
    program = """
        capture.start()
        print("output")
        capture.stop(notice=False)
        print(input(), capture.asked_for_input)
        try:
            input()
        except EOFError:
            print("over", capture.asked_for_input)
    """
    ended = run(program, tmp_path / "log", stdin="typed later\n")
    assert ended.stdout == "typed later False\nover False\n", ended.stderr
    assert (tmp_path / "log").read_text() == "output\n"


def test_stdin_looks_as_python_made_it(tmp_path: Path) -> None:
    facts = """
        def look():
            raw = sys.stdin.buffer.raw
            return [repr(sys.stdin), type(sys.stdin), type(sys.stdin.buffer), sys.stdin is sys.__stdin__, raw.name,
                    isinstance(raw, __import__("io").FileIO), raw.closefd, sys.stdin.fileno(), sys.stdin.errors,
                    sys.stdin.newlines, sys.stdin.line_buffering, sys.stdin.encoding, raw.mode, sys.stdin.mode]
        before = look()
        capture.start()
        after = look()
        capture.stop(notice=False)
        print([pair for pair in zip(before, after) if pair[0] != pair[1]], type(sys.stdin.buffer.raw).__name__)
    """
    ended = run(facts, tmp_path / "log")
    assert ended.stdout == "[] _WatchedFile\n", ended.stderr


def test_stream_of_script_s_own_is_left_alone(tmp_path: Path) -> None:
    program = """
        import io
        sys.stdin = own = io.StringIO("mine")
        capture.start()
        assert sys.stdin is own and input() == "mine"
        capture.stop(notice=False)
        print(capture.asked_for_input)
    """
    assert run(program, tmp_path / "log").stdout == "False\n"
