"""Writes to a terminal by its descriptor. Textual's writer thread."""

from __future__ import annotations

import os
import select


class TerminalWriter:
    """The part of a text file's interface that Textual's writer thread needs.

    Writes to a terminal that is gone are discarded silently: an error would end the writer thread, and its full queue would
    then block the UI thread for good.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        """Write all of `text`, waiting if the terminal is slow."""
        data = memoryview(text.encode("utf-8", errors="replace"))
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another process that shares the terminal made it non-blocking
                select.select([], [self._descriptor], [], 1.0)
            except OSError:
                break
        return len(text)

    def flush(self) -> None:
        """Do nothing: no output is buffered."""

    def fileno(self) -> int:
        """Return the terminal's descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return True, because the descriptor is a terminal's."""
        return True
