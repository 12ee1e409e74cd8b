"""The processes that descend from a launcher of ranks, and signals for them. POSIX only.

torchrun starts each rank in a session of its own, and ends it when it ends itself. `accelerate launch` of one process leaves
its rank in the process group, so that the terminal's Ctrl+C ends both, and leaves it behind if it is killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

_POLL_S = 0.02


class Descendants:
    """The processes that descend from a process now.

    They are objects of psutil, which never signal another process that has got the same id.
    """

    def __init__(self, process: int) -> None:
        self._found: list[Any] = []
        with contextlib.suppress(Exception):  # psutil raises its own errors, and those of what it reads
            import psutil

            self._found = psutil.Process(process).children(recursive=True)

    def signal_group(self, number: int) -> None:
        """Send a signal to those in the process group of the calling process, as a terminal would."""
        group = os.getpgrp()
        for each in self._found:
            with contextlib.suppress(Exception):
                if os.getpgid(each.pid) == group:
                    each.send_signal(number)

    def kill(self, seconds: float) -> None:
        """Wait until all have ended, and kill those that have not after so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not all(map(_has_ended, self._found)):
            time.sleep(_POLL_S)
        for each in self._found:
            with contextlib.suppress(Exception):
                each.kill()


def _has_ended(process: Any) -> bool:
    """Return whether a process of psutil has ended, also if its parent has not waited for it, and may never do so."""
    try:
        return not process.is_running() or process.status() in ("zombie", "dead")
    except Exception:  # noqa: BLE001 - psutil raises its own errors, for a process that is gone among others
        return True
