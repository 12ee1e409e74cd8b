"""Repeat on the terminal what ranks print after the screen is closed: their descriptors lead to their logs to the end."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence

from gradtui.system.own_thread import OwnThread
from gradtui.system.printable import printable
from gradtui.transport.rank_logs import JobTail, OutputLine

_POLL_S = 0.25
_LAST_S = 2.0
"""Seconds that the end of the run waits for a terminal that takes no text."""


class OutputRepeater:
    """Writes new lines of the ranks to stderr, each with its rank. What the launcher prints goes to the terminal by itself."""

    def __init__(self, tail: JobTail) -> None:
        """`tail` belongs to this object from now on."""
        self._tail = tail
        self._stop = threading.Event()
        self._owner = os.getpid()
        self._thread = OwnThread(self._run, "gradtui-output")

    def start(self) -> None:
        """Begin to repeat."""
        self._thread.start()

    def finish(self) -> None:
        """Repeat the rest, and stop."""
        if os.getpid() == self._owner:
            self._stop.set()
            self._thread.join(_LAST_S)

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            self._tail.poll()
            self._write(self._tail.new_lines())
        self._tail.poll()
        self._write(self._tail.new_lines(all_of_them=True))

    @staticmethod
    def _write(lines: Sequence[OutputLine]) -> None:
        of_ranks = "".join(f"{line.label}{printable(line.text)}\n" for line in lines if line.rank is not None)
        text = of_ranks.encode(errors="replace")
        with contextlib.suppress(OSError):
            while text:
                text = text[os.write(2, text) :]
