"""The CPU time of the script's child processes: whether training may have run where gradtui does not see it. POSIX only."""

from __future__ import annotations

import contextlib
import os

_FIELDS = ("user", "system", "children_user", "children_system")
"""Of a process: its own time, and that of those of its children that it has waited for."""


def cpu_seconds() -> float:
    """Seconds that all child processes of this process have used so far: those that it has waited for, and those alive.

    Helper processes of gradtui are children of another process. A child that nobody waits for, and that has ended, counts
    as long as it is a zombie.
    """
    waited_for = os.times()
    seconds = waited_for.children_user + waited_for.children_system
    with contextlib.suppress(Exception):  # psutil raises its own errors, and those of what it reads
        import psutil

        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += sum(getattr(times, field, 0.0) for field in _FIELDS)
    return seconds
