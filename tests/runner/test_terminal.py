"""Whether there is a terminal to draw on, and how it is given back by force."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from helpers.terminal_session import ROOT, TerminalSession

from gradtui.runner.terminal import RESET, terminal_width

ASK = "from gradtui.runner.terminal import why_no_screen; print('reason:', why_no_screen())"


@pytest.mark.parametrize(
    ("redirection", "term", "reason"),
    [
        ("", "xterm-256color", "None"),
        ("", "dumb", "TERM names no terminal"),
        ("", "", "TERM names no terminal"),
        ("</dev/null", "xterm", "standard input is not a terminal"),
        ("2>/dev/null", "xterm", "the output is not a terminal"),
        ("| cat", "xterm", "the output is not a terminal"),
        ("<&-", "xterm", "standard input is not a terminal"),
        (">&2 2>&-", "xterm", "the output is not a terminal"),
    ],
)
def test_why_no_screen(redirection: str, term: str, reason: str) -> None:
    command = ["/bin/sh", "-c", f'"{sys.executable}" -c "{ASK}" {redirection}']
    with TerminalSession(command, env={"TERM": term}) as session:
        session.wait_for("reason: " + reason)


def test_no_screen_without_a_controlling_terminal(tmp_path: Path) -> None:
    program = (
        "import os, pty, sys\nm, s = pty.openpty()\nos.setsid()\nfor n in (0, 1, 2): os.dup2(s, n)\n"
        "from gradtui.runner.terminal import why_no_screen\nopen(sys.argv[1], 'w').write(str(why_no_screen()))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "said")], env=environ, check=True, timeout=60)
    assert (tmp_path / "said").read_text() == "there is no controlling terminal"


SPOIL = """\
import os, sys, termios, tty
from gradtui.runner.terminal import ControllingTerminal
terminal = ControllingTerminal()
print("main screen")
tty.setraw(0)
for mode in ("1049h", "1000h", "1003h", "1006h", "1004h", "2004h", "2048h", "2026h", "7l", "25l"):
    os.write(1, b"\\x1b[?" + mode.encode())
os.write(1, b"SPOILT\\x1b[38;5")
os.read(0, 1)
terminal.restore()
print("restored")
print("then came", sys.stdin.readline())
"""


def test_restore_undoes_every_mode() -> None:
    with TerminalSession([sys.executable, "-c", SPOIL]) as session:
        session.wait_for("SPOILT")
        assert len(session.problems_left()) >= 8
        session.send("x" * 10)  # all but the first are never read, and must not reach what comes next
        session.wait_for("restored")
        assert session.problems_left() == []
        assert "main screen" in session.text
        assert 7 in {mode >> 5 for mode in session.screen.mode}  # line wrap, as pyte numbers private modes
        assert termios.tcgetattr(session.process.child_fd) == session.settings_before
        session.send("y\n")
        session.wait_for("then came y")
        assert session.wait_end() == 0


def test_alternate_screen_is_left_once_at_end() -> None:
    assert RESET.count(b"\x1b[?1049l") == 1
    assert RESET.index(b"\x1b[<u") < RESET.index(b"\x1b[?1049l")
    assert RESET.index(b"\x1b[?2026l") < RESET.index(b"\x1b[?1049l") < RESET.index(b"\x1b[?25h")


def test_what_is_no_terminal_has_no_width() -> None:
    reading, writing = os.pipe()
    try:
        assert terminal_width(writing) is None
    finally:
        os.close(reading)
        os.close(writing)
