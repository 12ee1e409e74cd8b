"""Run a program in a pseudo-terminal, read what it draws, and leave none of its processes behind."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import pexpect
import psutil

LINES, COLUMNS = 50, 160
_SHOWS_NOTHING = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-Z\\^-~]|\x1b.{0,30}\Z|\s", re.DOTALL
)
"""Of a terminal's stream: sequences as ECMA-48 has them, whole or just begun at the end, and blanks."""


class PseudoTerminal:
    """Runs a command at 160×50, reads what it draws and notes when the first of it came. A context manager."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str] | None = None,
        take: Callable[[bytes], object] = lambda _: None,
    ) -> None:
        """Start the command. `take` receives what it draws, as it is read."""
        environ = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})}
        environ.pop("COLUMNS", None)
        environ.pop("LINES", None)
        self._take = take
        self.began = time.monotonic()
        self.painted: float | None = None
        """When something was first seen on the full screen, by the clock of `time.monotonic`."""
        self.drawn = b""
        """The newest of what was drawn."""
        self._process = pexpect.spawn(
            command[0], list(command[1:]), dimensions=(LINES, COLUMNS), env=environ, timeout=None, echo=False
        )

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self._process.pid)
            for process in [*leader.children(recursive=True), leader]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._process.close(force=True)

    def type(self, keys: str) -> None:
        """Press keys."""
        self._process.send(keys)

    def read_until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Read until `condition` holds, the program has ended, or the time is over; return whether it holds."""
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                return False
            try:
                data = self._process.read_nonblocking(65536, timeout=0.05)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                return bool(condition())
            self.drawn = (self.drawn + data)[-200_000:]
            self._take(data)
            if self.painted is None and _SHOWS_NOTHING.sub(b"", self.drawn.partition(b"\x1b[?1049h")[2]):
                self.painted = time.monotonic()
        return True
