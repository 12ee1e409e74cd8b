"""Give gradtui's file descriptors high numbers, which a script does not use. Any thread."""

from __future__ import annotations

import contextlib
import os
import sys

if sys.platform != "win32":
    import fcntl

LOWEST_OWN = 200
"""The lowest number of gradtui's descriptors: above those that a script opens or closes by number, below the 256 that macOS
allows and the 1,024 that `select` can watch."""


def move_aside(descriptor: int) -> int:
    """Move a descriptor to a high number with close-on-exec set. Returns the new number and closes the old descriptor."""
    duplicate = duplicate_aside(descriptor)
    os.close(descriptor)
    return duplicate


def duplicate_aside(descriptor: int) -> int:
    """Duplicate a descriptor to a high number with close-on-exec set; to any number if the process's limit is lower.

    Raises:
        OSError: `descriptor` is not open, or no descriptor is free.
    """
    if sys.platform == "win32":
        return os.dup(descriptor)
    with contextlib.suppress(OSError):
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_OWN)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
