"""Who reads from what while the screen is up. The original stdin, a pipe here, stands for the terminal."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from helpers.programs import run_program

from gradtui.runner.output_capture import INPUT_REFUSED

ASKED = """\
import builtins, getpass, io, os, sys
from pathlib import Path
from gradtui.runner.output_capture import OutputCapture
from gradtui.runner.script_input import ScriptInput
class Loan:
    gives, waits = True, []
    def begin(self): return self.gives
    def follow(self): pass
    def end(self, typed):
        with open(sys.argv[1], "a") as log: log.write(typed)
before = builtins.input, getpass.getpass
loan, capture = Loan(), OutputCapture(Path(sys.argv[1]))
capture.start()
reads = ScriptInput(capture, loan, loan.waits.append)
reads.start()
def over():
    reads.stop()
    capture.stop(notice=False)
"""


def run(program: str, log: Path, stdin: str = "one\ntwo\nthree\n") -> tuple[str, str]:
    """Returns what was printed after the capture, and the log."""
    source = ASKED + textwrap.dedent(program)
    ended = run_program(source, log, stdin=stdin, check=False, PYTHONIOENCODING="utf-8")
    assert ended.stderr == ""
    return ended.stdout, log.read_text()


READS = {
    "input": ("input('a ')", "'one'", "a one\n"),
    "an object": ("input(5)", "'one'", "5one\n"),
    "readline": ("sys.stdin.readline()", "'one\\n'", "one\ntwo\nthree\n"),
    "lines": ("list(sys.stdin)", "['one\\n', 'two\\n', 'three\\n']", "one\ntwo\nthree\n"),
    "bytes": ("sys.stdin.buffer.read()", "b'one\\ntwo\\nthree\\n'", "one\ntwo\nthree\n"),
    "another encoding": ("[setattr(sys, 'stdin', io.TextIOWrapper(sys.stdin.buffer)), input('a ')][1]", "'one'", None),
}


@pytest.mark.parametrize(("expression", "value", "kept"), READS.values(), ids=READS)
def test_read_gets_terminal_and_log_what_was_typed(
    tmp_path: Path, expression: str, value: str, kept: str | None
) -> None:
    program = f"""
        found = {expression}
        where = os.path.samestat(os.fstat(0), os.stat(os.devnull)), os.path.samestat(os.fstat(1), os.stat(sys.argv[1]))
        over()
        print(repr(found), where, loan.waits, (builtins.input, getpass.getpass) == before)
    """
    out, log = run(program, tmp_path / "log")
    assert out.startswith(f"{value} (True, True) [True, False")
    assert out.endswith("] True\n")
    if kept is not None:
        assert log == kept


OWN = {
    "a stream": "sys.stdin = io.StringIO('own\\n')",
    "a file": "open('own', 'w').write('own\\n'); sys.stdin = open('own')",
    "descriptor 0": "open('own', 'w').write('own\\n'); os.dup2(os.open('own', os.O_RDONLY), 0)",
}


@pytest.mark.parametrize("statement", OWN.values(), ids=OWN)
def test_own_input_of_script_is_unchanged(tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out, log = run(f"{statement}\nfound = input('a '), builtins.input\nover()\nprint(found[0])\n", tmp_path / "log")
    assert (out, log) == ("own\n", "a ")


REFUSED = {
    "the dashboard does not answer": "loan.gives = False",
    "a child process": "pid = os.fork()\nif pid: os.waitpid(pid, 0); os._exit(0)",
    "a child process of multiprocessing": """\
import multiprocessing.util as util
pid = os.fork()
if pid: os.waitpid(pid, 0); os._exit(0)
util._close_stdin()""",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_process_without_terminal_gets_end_of_file(tmp_path: Path, statement: str) -> None:
    program = (
        f"{statement}\ntry:\n    input('a ')\nexcept EOFError as error:\n    print(error, flush=True)\nos._exit(0)\n"
    )
    out, log = run(program, tmp_path / "log")
    assert (out, log) == ("", f"a \n{INPUT_REFUSED}EOF when reading a line\n")


def test_output_goes_to_log_and_stop_restores(tmp_path: Path) -> None:
    program = """
        class Prompt:
            def __str__(self):
                return "a "
        def began(on):
            if on:
                print("meanwhile")
                over()
        reads._waits = began
        found = input(Prompt())
        print(found, builtins.input is before[0], capture.active)
        print(input())
    """
    out, log = run(program, tmp_path / "log")
    assert out == "a one True False\ntwo\n"
    assert log == "meanwhile\na one\n"


def test_kept_wrapper_reads_as_without_screen(tmp_path: Path) -> None:
    program = """
        kept, sys.stdout = input, io.StringIO()
        over()
        sys.stdout = sys.__stdout__
        print(kept(), kept.__name__, kept.__doc__ == input.__doc__)
    """
    assert run(program, tmp_path / "log") == ("one input True\n", "")
