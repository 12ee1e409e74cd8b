"""A program in a pseudo-terminal, and what a person would see of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pexpect
import psutil
import ptyprocess
import pyte
import pyte.modes

from helpers import fork_server

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
"""Seconds after which a condition that did not come true is a failure: several times what a slow machine needs."""

ALTERNATE = 1049 << 5  # how pyte numbers private modes


class TerminalScreen(pyte.Screen):
    """pyte's screen, with the alternate screen that it lacks and a note of the private modes that are set."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self.private_modes: set[int] = set()
        self._main_buffer = None

    def set_mode(self, *modes: int, **options: bool) -> None:
        if options.get("private"):
            if 1049 in modes and 1049 not in self.private_modes:
                self._main_buffer = (dict(self.buffer), self.cursor.y, self.cursor.x)
                self.buffer.clear()
                self.dirty.update(range(self.lines))
            self.private_modes |= set(modes)
        super().set_mode(*modes, **options)

    def reset_mode(self, *modes: int, **options: bool) -> None:
        if options.get("private"):
            if 1049 in modes and self._main_buffer is not None:
                buffer, self.cursor.y, self.cursor.x = self._main_buffer
                self.buffer.clear()
                self.buffer.update(buffer)
                self._main_buffer = None
                self.dirty.update(range(self.lines))
            self.private_modes -= set(modes)
        super().reset_mode(*modes, **options)

    def report_device_status(self, mode: int = 0, **options: bool) -> None:
        """Queries are not answered."""


class ForkedSpawn(pexpect.spawn):
    """A command in a pseudo-terminal, in a process that the fork server forks."""

    def _spawnpty(self, args: list[str], **options: Any) -> ptyprocess.PtyProcess:
        ours, theirs = os.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", *options["dimensions"], 0, 0))
        try:
            pid = fork_server.fork(args, options["cwd"], options["env"], [theirs] * 3, leads=True)
        finally:
            os.close(theirs)
        if pid is not None:
            return ptyprocess.PtyProcess(pid, ours)
        os.close(ours)
        return super()._spawnpty(args, **options)


class TerminalSession:
    """Runs a command in a pseudo-terminal of its own. Use as a context manager: nothing it started is left behind.

    With `forked` it runs in a process that the fork server forks.
    """

    def __init__(
        self, command: Sequence[str], *, columns: int = 80, lines: int = 24, env: dict[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None, forked: bool = False,
    ) -> None:  # fmt: skip
        environ = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", **(env or {})}
        environ.pop("COLUMNS", None)
        environ.pop("LINES", None)
        self.screen = TerminalScreen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._gone = False
        self._text = ""
        self.process = (ForkedSpawn if forked else pexpect.spawn)(
            command[0], list(command[1:]), dimensions=(lines, columns), env=environ, cwd=cwd, echo=True, timeout=None
        )
        self.settings_before = termios.tcgetattr(self.process.child_fd)

    def __enter__(self) -> TerminalSession:
        return self

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.process.pid)
            for process in [*leader.children(recursive=True), leader]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self.process.close(force=True)

    def read(self) -> None:
        """Take in what has been drawn; waits a moment if there is nothing."""
        if self._gone:
            time.sleep(0.02)
            return
        try:
            data = self.process.read_nonblocking(65536, timeout=0.02)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.raw += data
        self._stream.feed(data)

    def wait_until(self, condition: Callable[[], object], what: str = "") -> None:
        """Read until `condition` holds, and fail with the screen's content if it does not in time."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not seen in {DEADLINE} s: {what}\n" + "\n".join(self.screen.display))
            self.read()

    @property
    def changes(self) -> str:
        """What the panel of changes says, in one line; empty while the panel is not there."""
        lines = self.text.splitlines()
        top = next((row for row, line in enumerate(lines) if "╭─ Changes" in line), len(lines))
        inside = (line[lines[top].index("Changes") - 2 :].strip("│ ") for line in lines[top + 1 :])
        return " ".join(" ".join(inside).partition("╰")[0].split())

    def wait_for(self, text: str) -> None:
        """Read until `text` is on the screen."""
        self.wait_until(lambda: text in self.text, repr(text))

    def wait_gone(self, text: str) -> None:
        """Read until `text` has not been on the screen for 20 reads. A new size clears the screen before it is drawn again."""
        absent = 0

        def is_gone() -> bool:
            nonlocal absent
            absent = 0 if text in self.text else absent + 1
            return absent > 20

        self.wait_until(is_gone, f"without {text!r}")

    @property
    def text(self) -> str:
        """What is on the screen now."""
        # Put together only where something was drawn: tests ask fifty times a second, and it takes 8 ms.
        if self.screen.dirty:
            self.screen.dirty.clear()
            self._text = "\n".join(line.rstrip() for line in self.screen.display)
        return self._text

    @property
    def full_screen(self) -> bool:
        """Whether the alternate screen is shown."""
        return 1049 in self.screen.private_modes

    def send(self, keys: str) -> None:
        """Type."""
        self.process.send(keys)

    def resize(self, columns: int, lines: int) -> None:
        """Change the window's size."""
        self.screen.resize(lines, columns)
        self.process.setwinsize(lines, columns)

    def hang_up(self) -> None:
        """Close the window: the terminal is gone, the programs on it are told by SIGHUP."""
        self.process.ptyproc.fileobj.close()
        self._gone = True

    def plot_server(self) -> psutil.Process:
        """The child of the supervisor that has a session of its own."""

        def found() -> list[psutil.Process]:
            children = psutil.Process(self.process.pid).children()
            return [child for child in children if os.getsid(child.pid) == child.pid]

        self.wait_until(found, "plot server")
        return found()[0]

    def training_process(self) -> psutil.Process:
        """The child of the supervisor that is of its session: the plot server has one of its own."""

        def found() -> list[psutil.Process]:
            children = psutil.Process(self.process.pid).children()
            return [child for child in children if os.getsid(child.pid) == os.getsid(self.process.pid)]

        # The plot server is forked first, and leaves the session before anything else.
        self.wait_until(lambda: len(found()) == 1, "training process")
        return found()[0]

    def wait_end(self) -> int:
        """Read to the end. Returns what a shell would show: the exit code, or 128 plus the signal."""
        self.wait_until(lambda: not self.process.isalive(), "the end of the process")
        self.read()
        if self.process.signalstatus is not None:
            return 128 + int(self.process.signalstatus)
        return int(self.process.exitstatus)

    def problems_left(self) -> list[str]:
        """What is wrong with the terminal compared with how it was found; empty where it is restored."""
        modes = {1049: "alternate screen", 1000: "mouse", 1003: "mouse motion", 1006: "mouse format", 1004: "focus",
                 2004: "bracketed paste", 2026: "synchronised output", 2048: "in-band resize"}  # fmt: skip
        problems = [name for mode, name in modes.items() if mode in self.screen.private_modes]
        if self.screen.cursor.hidden:
            problems.append("cursor hidden")
        if self.raw.count(b"\x1b[>") > self.raw.count(b"\x1b[<u"):
            problems.append("keyboard protocol")
        if termios.tcgetattr(self.process.child_fd) != self.settings_before:
            problems.append("line settings")
        return problems


def launch_command(log: Path | str, *words: str) -> list[str]:
    """The command that runs `mini_launch.py`."""
    return [sys.executable, str(Path(__file__).parent / "mini_launch.py"), str(log), *words]
