"""What a script may do while the screen is up, in a real terminal: it meets what plain python would have it meet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from terminal_session import TerminalSession

from gradtui.runner.output_capture import INPUT_REFUSED


def session(directory: Path, script: str) -> TerminalSession:
    (directory / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "gradtui", "script.py"]
    environment = {"XDG_STATE_HOME": str(directory), "OMP_NUM_THREADS": "1"}
    return TerminalSession(command, columns=150, lines=40, env=environment, cwd=directory)


@pytest.mark.slow
def test_a_script_that_wants_input_gets_the_end_of_the_file_and_the_person_the_reason(tmp_path: Path) -> None:
    with session(tmp_path, "answer = input('how many? ')\n") as run:
        run.wait_for("EOFError: EOF when reading a line")
        assert "stdin belongs to the dashboard" in run.text
        run.send("q")
        assert run.wait_end() == 1
        assert run.problems_left() == []


@pytest.mark.slow
def test_the_reason_is_also_the_last_that_is_said(tmp_path: Path) -> None:
    script = """
try:
    input("how many? ")
except EOFError:
    for number in range(100):
        print("line", number)
"""
    with session(tmp_path, script) as run:
        run.wait_for("line 99")
        run.send("q")
        assert run.wait_end() == 0
        assert run.raw.split(b"\x1b[?1049l")[-1].count(INPUT_REFUSED.strip().encode()) == 1
