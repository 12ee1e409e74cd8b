"""Where the cursor stands that stderr moves: a line of gradtui must not continue a line that the script has not ended.

Progress bars leave their line unfinished, and nested ones go up again with `ESC [ A`. The streams of
`runner/standard_streams.py` note what python writes as text. What is written to their `buffer` or by C code and other processes
stays unknown. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
from threading import Lock

_MAX_ROWS = 100
MAX_READ = 4_096
"""Bytes at the end of one write that are looked at."""

_TOKEN = re.compile(
    rb"(?P<line>\n)|(?P<start>\r)|\x1b\[(?P<count>[0-9]*)[0-?]*[ -/]*(?P<final>[@-~])"
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|(?P<text>[^\x00-\x1f\x7f]+|\t+)|[\x00-\x1f\x7f]"
)


class CursorLine:
    """The last rows that were written, as far as it matters: which of them have text, and on which the cursor stands.

    Any thread. Two threads that write at the same moment may leave the rows of one of them out.
    """

    def __init__(self) -> None:
        self.report_lock = Lock()
        """Held while the report on the script's error is written. Python writes it in pieces, and gradtui's lines wait."""
        self.begin()

    def begin(self) -> None:
        """Forget what was written: the cursor is at the start of an empty row. Looks again where stdout and stderr lead."""
        self._state: tuple[tuple[bool, ...], int, int, bool] = (False,), 0, 0, True
        self.is_shared = False
        """Whether stdout and stderr lead to the same file."""
        with contextlib.suppress(OSError):
            self.is_shared = os.path.sameopenfile(1, 2)

    def note(self, descriptor: int, data: bytes) -> None:
        """Follow what was written to descriptor 1 or 2; the first only matters if both lead to the same file."""
        if descriptor == 1 and not self.is_shared:
            return
        rows, rise, length, is_at_start = self._state
        filled = list(rows)
        for match in _TOKEN.finditer(data[-MAX_READ:]):
            if match["line"]:
                if rise:
                    rise -= 1
                else:
                    filled.append(False)
                length, is_at_start = 0, True
            elif match["start"]:
                is_at_start = True
            elif text := match["text"]:
                covers = is_at_start and text.isspace() and len(text) >= length
                filled[-1 - rise] = not covers
                length = max(length, len(text)) if is_at_start else length + len(text)
                is_at_start = False
            elif (final := match["final"]) in (b"A", b"B"):
                count = int(match["count"][:3] or 1)
                rise = min(max(0, rise + (count if final == b"A" else -count)), len(filled) - 1)
            elif final == b"K" and (match["count"] == b"2" or is_at_start):
                filled[-1 - rise], length = False, 0
        self._state = tuple(filled[-_MAX_ROWS:]), min(rise, _MAX_ROWS - 1), length, is_at_start

    def take_fresh(self) -> str:
        """Return the line ends that lead from the cursor to an empty row below all text. The caller then writes whole lines."""
        rows, rise, *_ = self._state
        below = rows[len(rows) - 1 - rise :]
        text = [index for index, is_filled in enumerate(below) if is_filled]
        self._state = (False,), 0, 0, True
        return "\n" * (text[-1] + 1) if text else ""


STDERR_LINE = CursorLine()
"""Where the cursor of this process's stderr stands."""
