"""How much host memory this process can still have: that of the machine, and that of its control group (a container's limit).

The files are those of Linux, of the control groups' second and first version. A process sees its own group at the root of
`/sys/fs/cgroup` in a container, and by the path in `/proc/self/cgroup` elsewhere. What a group's parents limit counts too.
Source: the kernel's `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gradtui.system.host_memory import machine_memory

_ROOT = Path("/")


class _Version(NamedTuple):
    """Where one version of the control groups has its figures."""

    folder: str
    limit: str
    used: str
    cache: str
    """The figure in `memory.stat` of files in memory that have not been read for a while: the kernel takes them first."""
    controller: str
    """How `/proc/self/cgroup` names the group; the second version has no name for it."""


_VERSIONS = (
    _Version("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", ""),
    _Version("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory"),
)


def free_memory(root: Path = _ROOT) -> int:
    """Return the bytes that programs can have without swapping, and this process below the limits of its control groups.

    `root` has the files of Linux.
    """
    left = [max(0, limit - used) for limit, used in _figures(root)]
    return min([machine_memory().available, *left])


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the bytes that the control groups of this process allow it; None if that is no less than the machine has."""
    limits = [limit for limit, _ in _figures(root)]
    return min(limits) if limits and min(limits) < machine_memory().total else None


def _figures(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit of each control group that has one, and the bytes that the group cannot give back at once."""
    for version in _VERSIONS:
        for folder in _folders(root, version):
            with suppress(OSError, ValueError):
                limit = int((folder / version.limit).read_text(encoding="ascii"))
                used = int((folder / version.used).read_text(encoding="ascii"))
                yield limit, max(0, used - _cached(folder, version.cache))


def _folders(root: Path, version: _Version) -> Iterator[Path]:
    """Yield the folder of the process's own group, and those of its parents."""
    top = root / version.folder
    own = top
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if version.controller in controllers.split(","):
                own = top / path.lstrip("/")
    while own != top and ".." not in own.parts:
        yield own
        own = own.parent
    yield top


def _cached(folder: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
