"""Detect that the script reads standard input while the screen has the keyboard, so that gradtui can tell the user why the
script got no input. Any thread that reads.

gradtui rebuilds `sys.stdin` from the same classes over descriptor 0, as python does. Only the innermost, which does the system
call, is a class of gradtui. So it reads the same as always, and `input()` raises the same EOFError as on a closed stdin.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any


class _NoticedFile(io.FileIO):
    """Descriptor 0. It calls a callback for each read that reaches the end of the file."""

    def __init__(self, ended: Callable[[], None]) -> None:
        super().__init__(0, "r", closefd=False)
        self.name = "<stdin>"
        self._ended = ended

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        if count == 0:
            self._tell()
        return count

    def readall(self) -> bytes:
        data = super().readall()
        if not data:
            self._tell()
        return data

    def _tell(self) -> None:
        with contextlib.suppress(Exception):
            self._ended()


def notice_end_of_input(ended: Callable[[], None]) -> None:
    """Call `ended` whenever python's own stdin reaches the end of its file. Does nothing if stdin is not python's own."""
    with contextlib.suppress(Exception):
        before = sys.stdin
        if type(before) is not io.TextIOWrapper or before is not sys.__stdin__ or before.fileno() != 0:
            return
        stream = io.TextIOWrapper(
            io.BufferedReader(_NoticedFile(ended)),
            encoding=before.encoding,
            errors=before.errors,
            newline="\n",
            line_buffering=before.line_buffering,
        )
        stream.mode = before.mode  # type: ignore[misc]  # as python's own start sets it
        sys.stdin = sys.__stdin__ = stream  # type: ignore[misc]  # Final in typeshed only
