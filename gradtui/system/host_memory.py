"""Read the memory of the machine and of this process: from the files of Linux, elsewhere by psutil. Any thread.

The import of psutil takes ten milliseconds of the start. Where it is needed it is imported with this module: later the script
may have changed where modules are found. Sources: `proc_meminfo(5)` and `proc_pid_statm(5)` of the Linux manual.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ROOT = Path("/")


class MachineMemory(NamedTuple):
    """Bytes of the machine's memory."""

    total: int
    available: int
    """What programs can have without swapping."""


def machine_memory() -> MachineMemory:
    """Return the memory of the machine."""
    read = in_files(_ROOT)
    if read is not None:
        return read
    import psutil

    memory = psutil.virtual_memory()
    return MachineMemory(memory.total, memory.available)


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory."""
    with suppress(OSError, ValueError, IndexError):
        return int((_ROOT / "proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    rss: int = psutil.Process().memory_info().rss
    return rss


def in_files(root: Path) -> MachineMemory | None:
    """Return the memory as Linux says it; None where it does not. `root` has its files."""
    with suppress(OSError, ValueError, KeyError, IndexError):
        lines = (root / "proc/meminfo").read_text(encoding="utf-8").splitlines()
        kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
        # Some containers say more than they have in all.
        fits = kib["MemAvailable"] <= kib["MemTotal"]
        return MachineMemory(kib["MemTotal"] << 10, kib["MemAvailable" if fits else "MemFree"] << 10)
    return None


if in_files(_ROOT) is None:
    import psutil  # noqa: F401
