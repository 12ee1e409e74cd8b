"""A run in the background of a shell, and two runs on one terminal: a real shell with job control on a real terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from helpers.terminal_session import TerminalSession

from .running import TRAIN, environment

pytestmark = pytest.mark.slow

COUNTS = """
def train(steps=1, train=train):
    for _ in range(steps):
        train()
        with open("steps", "a") as file:
            file.write("x")
"""


class Shell(TerminalSession):
    """An interactive shell in a folder with a script that trains until there is a file `go`."""

    def __init__(self, directory: Path, end: str = "sys.exit(3)") -> None:
        (directory / "script.py").write_text(f"{TRAIN}{COUNTS}until('go')\nprint('the last words')\n{end}\n")
        self.directory = directory
        self.gradtui = f"{sys.executable} -m gradtui"
        own = {"PS1": "ready> ", "HISTFILE": "", "BASH_SILENCE_DEPRECATION_WARNING": "1"}
        env = environment(directory, XDG_RUNTIME_DIR=str(directory), **own)
        command = ["/bin/bash", "--norc", "--noprofile", "-i"]
        super().__init__(command, columns=120, lines=36, env=env, cwd=directory)
        self.type("stty -g > before; echo begun $((40 + 1))")
        self.wait_for("begun 41")

    def type(self, line: str) -> None:
        """Type a command, and enter."""
        self.send(f"{line}\r")

    @property
    def steps(self) -> int:
        """Steps that the script has recorded."""
        path = self.directory / "steps"
        return path.stat().st_size if path.exists() else 0

    def wait_steps(self) -> None:
        """Wait until training goes on."""
        before = self.steps
        self.wait_until(lambda: self.steps > before + 3, "more steps")

    def wait_dashboard(self) -> None:
        """Wait until the screen is up and shows the model."""
        self.wait_until(lambda: self.full_screen and "trainable" in self.text, "the screen")

    def let_end_in_front(self) -> None:
        """Let the script end under the dashboard, and leave that."""
        (self.directory / "go").touch()
        self.wait_for("exit code")
        self.send("q")
        self.wait_for("status 3")

    def end(self) -> None:
        """Leave the shell. The terminal is as it was."""
        self.type("stty -g > after; exit 0")
        assert self.wait_end() == 0
        # The session has seen the settings with which the shell reads a line.
        assert set(self.problems_left()) <= {"line settings"}
        assert (self.directory / "after").read_text() == (self.directory / "before").read_text()


def test_background_run_shows_screen_once_in_front(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        # A terminal that stops jobs which write to it from the background: a run there writes nothing that would stop it.
        shell.type("stty tostop")
        shell.type(f"{shell.gradtui} script.py &")
        shell.wait_for("in the background")
        shell.wait_steps()
        shell.type("echo still $((40 + 2))")
        shell.wait_for("still 42")
        assert b"\x1b[?1049h" not in shell.raw
        shell.type("fg")
        shell.wait_dashboard()
        shell.send("\x1a")
        shell.wait_until(lambda: not shell.full_screen, "the shell")
        shell.type("bg; echo sent $((1 + 1))")
        shell.wait_for("sent 2")
        shell.wait_steps()
        assert not shell.full_screen
        shell.type("fg; echo status $?")
        shell.wait_dashboard()
        shell.let_end_in_front()
        shell.type("stty -tostop")
        shell.end()


def test_run_that_ends_in_background_waits_for_nobody(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        shell.type(f"{shell.gradtui} --summary s.json script.py &")
        shell.wait_steps()
        (tmp_path / "go").touch()
        shell.wait_for("the last words")
        shell.type("wait %1; echo status $?")
        shell.wait_for("status 3")
        assert b"\x1b[?1049h" not in shell.raw
        assert (tmp_path / "s.json").exists()
        shell.end()


def test_kill_in_front_restores_settings_found_there(tmp_path: Path) -> None:
    """While the run starts in the background the shell reads a line, with settings that are not to come back."""
    with Shell(tmp_path) as shell:
        # The inner shell repairs no terminal, as the interactive one does.
        shell.type(f"sh -c '{shell.gradtui} script.py; stty -g > killed' &")
        shell.wait_steps()
        shell.type("fg")
        shell.wait_dashboard()
        supervisor = psutil.Process(shell.process.pid).children()[0].children()[0]
        training = [child for child in supervisor.children() if os.getsid(child.pid) == shell.process.pid]
        training[0].kill()
        shell.wait_until(lambda: (tmp_path / "killed").exists() and shell.text.rstrip().endswith("ready>"), "the shell")
        assert (tmp_path / "killed").read_text() == (tmp_path / "before").read_text()
        shell.end()


def test_second_run_on_terminal_runs_plain(tmp_path: Path) -> None:
    with Shell(tmp_path, end="") as shell:
        shell.type(f"{shell.gradtui} script.py &")
        shell.wait_steps()
        (tmp_path / "other.py").write_text("print('other', 6 * 7)\n")
        shell.type(f"{shell.gradtui} other.py")
        shell.wait_for("other 42")
        assert "script.py" in shell.text
        assert b"\x1b[?1049h" not in shell.raw
        shell.type("fg")
        shell.wait_dashboard()
        shell.send("q")
        shell.wait_for("Leave; training continues")
        shell.send("l")
        shell.wait_until(lambda: not shell.full_screen, "the run without a screen")
        (tmp_path / "go").touch()
        shell.wait_for("the last words")
        shell.type(f"{shell.gradtui} other.py")
        shell.wait_until(lambda: shell.full_screen, "the terminal is free again")
        shell.wait_for("exit code")
        shell.send("q")
        shell.wait_until(lambda: not shell.full_screen and shell.text.rstrip().endswith("ready>"), "the shell")
        shell.end()
