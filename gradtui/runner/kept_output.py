"""The script's stdout and stderr while they go to the log: a disk that is full must not end a script that only prints.

Under plain python its output goes to a terminal, which never says that there is no room. The streams are rebuilt from the
classes that python builds them from; only the innermost, which does the system call, is ours: what the log cannot take is
counted and dropped. Programs that the script starts, and C code, meet the error itself. Whatever thread prints.
"""

from __future__ import annotations

import contextlib
import errno
import io
import sys
from collections.abc import Callable
from typing import Any

Lost = Callable[[int, int, OSError], bool]
"""Told to which descriptor how many bytes could not be written, and why; says whether they may be dropped."""


class _KeptFile(io.FileIO):
    """Descriptor 1 or 2, asking what is to become of bytes that cannot be written."""

    def __init__(self, descriptor: int, lost: Lost) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.name = {1: "<stdout>", 2: "<stderr>"}[descriptor]
        self._lost = lost

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            size = memoryview(data).nbytes
            # A script that has closed its stdout is told so, as ever.
            if (
                error.errno == errno.EBADF
                or isinstance(error, BlockingIOError)
                or not self._lost(self.fileno(), size, error)
            ):
                raise
            return size


def keep_output(lost: Lost) -> None:
    """Have python's own stdout and stderr ask `lost` about what cannot be written. Others are left alone."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        # One that cannot be rebuilt stays python's own, and prints as ever as long as there is room.
        with contextlib.suppress(Exception):
            _rebuild(name, descriptor, lost)


def _rebuild(name: str, descriptor: int, lost: Lost) -> None:
    before = getattr(sys, name)
    if (
        type(before) is not io.TextIOWrapper
        or before is not getattr(sys, f"__{name}__")
        or before.fileno() != descriptor
    ):
        return
    file = _KeptFile(descriptor, lost)
    # Under `python -u` there is no buffer between.
    is_buffered = isinstance(before.buffer, io.BufferedWriter)
    stream = io.TextIOWrapper(
        io.BufferedWriter(file) if is_buffered else file,
        encoding=before.encoding,
        errors=before.errors,
        newline="\n",
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    stream.mode = before.mode  # type: ignore[misc]  # as python's own start sets it
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
