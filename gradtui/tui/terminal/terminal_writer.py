"""Writes to a terminal by its descriptor. Textual's writer thread."""

from __future__ import annotations

import os
import select


class TerminalWriter:
    """As much of a text file as Textual's writer thread needs.

    A terminal that is gone takes everything silently: an error would end the writer thread, and the full queue behind it
    would then block the screen's thread for good.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        """Write all of `text`, waiting for a terminal that is slow."""
        data = memoryview(text.encode("utf-8", errors="replace"))
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # somebody who shares the terminal made it non-blocking
                select.select([], [self._descriptor], [], 1.0)
            except OSError:
                break
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """A terminal it is."""
        return True
