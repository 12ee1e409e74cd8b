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


class OwnDescriptor:
    """A descriptor of gradtui that the script may close (`os.closerange` closes all). Its number may be the script's then.

    Args:
        descriptor: an open descriptor, which is moved to a high number.
    """

    def __init__(self, descriptor: int) -> None:
        self.number = move_aside(descriptor)
        self._identity = identity(self.number)

    @property
    def is_open(self) -> bool:
        """Whether the number still stands for what it was opened for."""
        return self._identity is not None and identity(self.number) == self._identity

    def close(self) -> None:
        """Close it, if it is still open."""
        if self.is_open:
            os.close(self.number)


def identity(descriptor: int) -> tuple[int, int] | None:
    """Return a value that identifies the open file; None if the descriptor is closed."""
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino
    return None
