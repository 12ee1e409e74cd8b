"""What the terminal shows of the log while the script has the terminal. Any thread, one at a time.

The log stays the one place that the script's output goes to. While the script has the terminal, gradtui copies the log there,
so that the user sees what plain python would show. What the user types is appended to the log, without being shown again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gradtui.runner.terminal import ControllingTerminal
from gradtui.transport.log_tail import MAX_READ, LogTail

CONTEXT_LINES = 20
"""Lines of the output from before that the terminal shows above the script's question."""

_WHY = "gradtui: the script asks for input; the dashboard comes back when the script goes on\n"


class ShownOutput:
    """The bytes of a log that have been shown on a terminal."""

    def __init__(self, log: Path, terminal: ControllingTerminal) -> None:
        self._log = log
        self._terminal = terminal
        self.size = 0
        """Bytes of the log that need not be shown any more."""
        self.is_within_line = False
        """Whether the cursor is behind text that was shown, and not at the start of a line."""

    def begin(self) -> None:
        """Say why the dashboard is gone, and show the newest lines that have not been shown yet."""
        self._write(("\n" if self.is_within_line else "") + _WHY)
        self._write(self._newest_lines())

    def follow(self) -> None:
        """Show what has been written to the log since the last call; of a flood, the newest lines."""
        with contextlib.suppress(OSError), open(self._log, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self.size:  # it was emptied
                self.size = 0
            if size - self.size > MAX_READ:
                self._write(self._newest_lines())
            elif size > self.size:
                self._write(os.pread(file.fileno(), size - self.size, self.size))
                self.size = size

    def append(self, typed: str) -> None:
        """Append to the log what the terminal already shows."""
        self.follow()
        with contextlib.suppress(OSError):
            # Open it each time: the script may close descriptors by number.
            descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                count = os.write(descriptor, typed.encode(errors="replace"))
                end = os.lseek(descriptor, 0, os.SEEK_CUR)
            finally:
                os.close(descriptor)
            if self.size == end - count:  # otherwise a child process has written meanwhile: its output must be shown
                self.size = end
                self.is_within_line = not typed.endswith("\n") if typed else self.is_within_line

    def _newest_lines(self) -> str:
        tail = LogTail(self._log, max_lines=CONTEXT_LINES, offset=self.size)
        tail.poll()
        self.size = tail.offset
        # The last line may be a prompt, which no end of line follows.
        return "\n".join(line.text for line in tail.lines_from(0)[-CONTEXT_LINES - 1 :])

    def _write(self, text: str | bytes) -> None:
        data = text.encode(errors="replace") if isinstance(text, str) else text
        if not data or self._terminal.is_lost:
            return
        self.is_within_line = not data.endswith(b"\n")
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._terminal.descriptor, data) :]
