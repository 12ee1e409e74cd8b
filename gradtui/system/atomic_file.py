"""Write a file completely or not at all. Any thread; standard library only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

OWNER_ONLY = 0o600
"""The permissions of files that say how a script was called, or what it prints."""

Fill = Callable[[BinaryIO], object]
"""Writes the content of a file."""

WriteFile = Callable[[str, str, Fill], str]
"""Creates a file of a run from a word in its name, its suffix and its content, and returns its path. Raises OSError."""


def write_atomically(
    path: Path, fill: Fill, *, mode: int = 0o666, replace: Callable[[Path, Path], None] = os.replace
) -> None:
    """Write a file with what `fill` writes, under another name in the same directory, and rename it to `path`.

    If `path` is a link, the link is replaced.

    Args:
        path: the file. One that exists is replaced.
        fill: writes the content.
        mode: the permissions, before the kernel applies the umask. (Python could read the umask only by changing it.)
        replace: renames the complete file to `path`, as `os.replace` does.

    Raises:
        OSError: the file cannot be written. Also raises what `fill` and `replace` raise. `path` is unchanged then.
    """
    # In a shared directory another user could create a link with a predictable name.
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
        replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
