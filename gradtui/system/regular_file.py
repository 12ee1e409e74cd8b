"""Open a file that the user has named. A FIFO would wait for its other end, and a device may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Return a regular file, opened for reading. Raises OSError, whose `strerror` says why."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return file


def content_of(path: Path, most: int) -> bytes:
    """Return the content of a regular file. Raises OSError, also if it has more than `most` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", os.fspath(path))
    return content
