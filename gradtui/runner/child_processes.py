"""Measure the CPU time of the script's child processes: training may have run there, out of gradtui's view. POSIX only."""

from __future__ import annotations

import contextlib
import os

_FIELDS = ("user", "system", "children_user", "children_system")
"""The CPU times of a process: its own, and those of the children that it has waited for."""


def cpu_seconds() -> float:
    """Return the CPU seconds of all child processes of this process so far: those that it has waited for, and those alive.

    Helper processes of gradtui are children of another process. A child that has ended and that the process has not waited for
    counts as long as it is a zombie.
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
