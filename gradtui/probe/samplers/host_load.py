"""Read what the process takes of the host, and what it waits for: cores, page faults, swap space. Sampler thread."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import ModuleType

from gradtui.protocol.samples import HostLoad

resource: ModuleType | None = None
with suppress(ImportError):
    resource = import_module("resource")

_PAGE = 4096
"""Bytes that the counters of Linux count as one page."""


class HostLoadReader:
    """Reads counters, and returns what they have grown by. `root` has the files of Linux."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before: tuple[float, float, int, int, float] | None = None
        """The time, the CPU time in seconds, page faults, pages swapped in, and the seconds that it waited for a core."""
        self._cores = cores(root)

    def read(self) -> HostLoad | None:
        """Return the load since the last call; None at the first one."""
        times = os.times()
        now = (
            monotonic(),
            times.user + times.system,
            _page_faults(),
            self._count("proc/vmstat", "pswpin"),
            self._waited_s(),
        )
        before, self._before = self._before, now
        if before is None or now[0] <= before[0]:
            return None
        seconds, busy, faults, pages, waited = (new - old for new, old in zip(now, before))
        swapped = self._count("proc/self/status", "VmSwap:") << 10
        return HostLoad(
            busy / seconds, self._cores, faults / seconds, pages * _PAGE / seconds, swapped, waited / seconds
        )

    def _waited_s(self) -> float:
        """Return for how long the main thread was ready to run and had no core (Linux: Documentation/scheduler/sched-stats)."""
        with suppress(OSError, ValueError, IndexError):
            return int((self._root / "proc/self/schedstat").read_text(encoding="utf-8").split()[1]) / 1e9
        return 0.0

    def _count(self, file: str, name: str) -> int:
        with suppress(OSError, ValueError):
            for line in (self._root / file).read_text(encoding="utf-8", errors="replace").splitlines():
                words = line.split()
                if len(words) > 1 and words[0] == name:
                    return int(words[1])
        return 0


def cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use: by its affinity and by the quota of its control group.

    The files are those of the control groups' second and first version, as a container sees its own.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            text = " ".join((root / "sys/fs/cgroup" / file).read_text(encoding="utf-8") for file in files)
            quota, period = map(int, text.split()[:2])
            if quota > 0 and period > 0:
                return min(allowed, max(1, math.ceil(quota / period)))
    return allowed


def _page_faults() -> int:
    """Return the page faults of the process that a disk had to answer; 0 on Windows."""
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_majflt) if resource is not None else 0
