"""Rebuild python's standard streams while the screen is up, so that gradtui learns of what they cannot do. Any thread.

Under plain python the output goes to a terminal, which never runs out of space: a full disk must not end a script that only
prints. Input comes from the keyboard, which the screen has: a read must first get the terminal. gradtui rebuilds the
streams from the same classes as python. Only the innermost, which does the system call, may be of a class of gradtui.
Programs that the script starts, and C code, get the error itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from gradtui.system.cursor_line import MAX_READ, STDERR_LINE

Lost = Callable[[int, int, OSError], bool]
"""Called with the descriptor, the number of bytes that could not be written, and the error. Returns whether to drop them."""

Reading = Callable[[Callable[[], bytes]], bytes]
"""Called with what reads from descriptor 0. Returns what that returns."""

_LINE_BUFFERED = 1
"""`_IOLBF` of <stdio.h>: 1 in glibc, musl and the BSDs."""

_NAMES = ("stdin", "stdout", "stderr")


class _Noted:
    """Stands in the place of the `write` and the `flush` of python's stdout or stderr, and notes where the cursor is.

    It notes what is written already. A signal's handler may raise between two lines of this class: below the buffer the caller
    would then write the same bytes again, because it would not know that they are written.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream, self._write, self._flush = stream, stream.write, stream.flush
        self._waiting = ""
        """The end of what a block-buffered stdout has not written yet."""

    def write(self, text: str, /) -> int:
        stream, count = self._stream, self._write(text)
        if stream.line_buffering or stream.write_through or stream is sys.__stderr__:
            self._note(text)
        else:
            self._waiting = (self._waiting + text)[-MAX_READ:]
        return count

    def flush(self) -> None:
        self._flush()
        waiting, self._waiting = self._waiting, ""
        self._note(waiting)

    def _note(self, text: str) -> None:
        with contextlib.suppress(Exception):
            STDERR_LINE.note(self._stream.fileno(), text[-MAX_READ:].encode(errors="replace"))


class _KeptFile(io.FileIO):
    """Descriptor 1 or 2. It asks a callback whether to drop bytes that cannot be written."""

    def __init__(self, descriptor: int, lost: Lost, instead: Callable[[int], int | None]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.name = f"<{_NAMES[descriptor]}>"
        self._lost, self._instead = lost, instead

    def write(self, data: Any, /) -> int:
        instead = self._instead(self.fileno())
        try:
            return os.write(instead, data) if instead is not None else super().write(data) or 0
        except OSError as error:
            size = memoryview(data).nbytes
            # A script that has closed its stdout gets the error, as under plain python.
            is_own = error.errno == errno.EBADF or isinstance(error, BlockingIOError)
            if is_own or not self._lost(self.fileno(), size, error):
                raise
            return size


class _WatchedFile(io.FileIO):
    """Descriptor 0. Each read is done by a callback."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(0, "r", closefd=False)
        self.name = f"<{_NAMES[0]}>"
        self._reading = reading

    def readinto(self, buffer: Any, /) -> int | None:
        count: int | None = None

        def read() -> bytes:
            nonlocal count
            count = super(_WatchedFile, self).readinto(buffer)
            return bytes(memoryview(buffer)[: count or 0])

        self._reading(read)
        return count

    def readall(self) -> bytes:
        return self._reading(super().readall)


def note_lines() -> None:
    """Make python's own stderr note where the cursor is; its stdout too if both lead to one file. Others stay unchanged."""
    STDERR_LINE.begin()
    for descriptor in (1, 2) if STDERR_LINE.is_shared else (2,):
        _rebuild(descriptor, lambda descriptor=descriptor: _file(descriptor), is_noted=True)  # type: ignore[misc]


def _file(descriptor: int) -> io.FileIO:
    file = io.FileIO(descriptor, "w", closefd=False)
    file.name = f"<{_NAMES[descriptor]}>"
    return file


def keep_output(lost: Lost, instead: Callable[[int], int | None] = lambda _descriptor: None) -> None:
    """Make python's own stdout and stderr call `lost` for bytes that cannot be written. Other streams stay unchanged.

    `instead` returns another descriptor for what is written to this one; None for none.
    """
    for descriptor in (1, 2):
        _rebuild(descriptor, lambda descriptor=descriptor: _KeptFile(descriptor, lost, instead), is_noted=True)  # type: ignore[misc]


def watch_input(reading: Reading) -> None:
    """Let `reading` do each read of python's own stdin. Does nothing if stdin is not python's own."""
    _rebuild(0, lambda: _WatchedFile(reading))


def _rebuild(descriptor: int, make: Callable[[], io.FileIO], *, is_noted: bool = False) -> None:
    """Replace the stream of a descriptor if it is python's own. One that cannot be rebuilt stays as it is."""
    name = _NAMES[descriptor]
    with contextlib.suppress(Exception):
        before = getattr(sys, name)
        is_python_s = type(before) is io.TextIOWrapper and before is getattr(sys, f"__{name}__")
        if not is_python_s or before.fileno() != descriptor:
            return
        file = make()
        # Under `python -u` there is no buffer between the layers.
        buffer: Any = file
        if isinstance(before.buffer, (io.BufferedReader, io.BufferedWriter)):
            buffer = type(before.buffer)(file)
        stream = io.TextIOWrapper(
            buffer,
            encoding=before.encoding,
            errors=before.errors,
            newline="\n",
            line_buffering=before.line_buffering,
            write_through=before.write_through,
        )
        stream.mode = before.mode  # type: ignore[misc]  # as python's own start sets it
        if is_noted:
            noted = _Noted(stream)
            stream.write, stream.flush = noted.write, noted.flush  # type: ignore[method-assign]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def flush_python() -> None:
    """Flush python's own streams. Streams that the script put in their place are the script's to flush."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]  # None raises, and that is left at that


def line_buffer() -> None:
    """Make python's and C's stdout line-buffered, as on a terminal. They buffer a file in blocks, and the screen would lag."""
    _line_buffer_python()
    _line_buffer_c()


def _line_buffer_python() -> None:
    """Make python's stdout line-buffered."""
    with contextlib.suppress(Exception):
        sys.__stdout__.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # None raises, and that is left at that


def _line_buffer_c() -> None:
    """Make C's stdout line-buffered. C decides the buffering at the first write.

    Calling `fflush(NULL)` regularly is no alternative: it takes the lock of every stream and would hang forever behind a stream
    that is blocked in a read.
    """
    with contextlib.suppress(Exception):
        libc = ctypes.CDLL(None)
        stream = ctypes.c_void_p.in_dll(libc, "__stdoutp" if sys.platform == "darwin" else "stdout")
        libc.setvbuf(stream, None, _LINE_BUFFERED, ctypes.c_size_t(0))
