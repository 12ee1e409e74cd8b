"""File descriptors of ours, kept where a script does not trip over them. Any thread."""

from __future__ import annotations

import contextlib
import os
import sys

if sys.platform != "win32":
    import fcntl

LOWEST_OWN = 200
"""Our descriptors start here: above what a script opens or closes by number, below the 256 that macOS allows and the
1,024 that `select` can watch."""


def move_aside(descriptor: int) -> int:
    """Move a descriptor to a high number, closed on exec. Returns the new number; the old one is closed."""
    duplicate = duplicate_aside(descriptor)
    os.close(descriptor)
    return duplicate


def duplicate_aside(descriptor: int) -> int:
    """Duplicate a descriptor to a high number, closed on exec; to any number where the limit is lower.

    Raises:
        OSError: `descriptor` is not open, or there are no free ones.
    """
    if sys.platform == "win32":
        return os.dup(descriptor)
    with contextlib.suppress(OSError):
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST_OWN)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
