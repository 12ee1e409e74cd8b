"""Keep the script's stdout and stderr working while they go to the log: a full disk must not end a script that only prints.

Under plain python the output goes to a terminal, which never runs out of space. gradtui rebuilds the streams from the same
classes as python. Only the innermost, which does the system call, is a class of gradtui: it counts and drops the bytes that
cannot be written to the log. Programs that the script starts, and C code, get the error itself. Any thread that prints.
"""

from __future__ import annotations

import contextlib
import errno
import io
import sys
from collections.abc import Callable
from typing import Any

Lost = Callable[[int, int, OSError], bool]
"""Called with the descriptor, the number of bytes that could not be written, and the error. Returns whether to drop them."""


class _KeptFile(io.FileIO):
    """Descriptor 1 or 2. It asks a callback whether to drop bytes that cannot be written."""

    def __init__(self, descriptor: int, lost: Lost) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.name = {1: "<stdout>", 2: "<stderr>"}[descriptor]
        self._lost = lost

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            size = memoryview(data).nbytes
            # A script that has closed its stdout gets the error, as under plain python.
            if (
                error.errno == errno.EBADF
                or isinstance(error, BlockingIOError)
                or not self._lost(self.fileno(), size, error)
            ):
                raise
            return size


def keep_output(lost: Lost) -> None:
    """Make python's own stdout and stderr call `lost` for bytes that cannot be written. Other streams stay unchanged."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        # A stream that cannot be rebuilt stays python's own, and works as long as the disk has space.
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
    # Under `python -u` there is no buffer between the layers.
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
