"""Read the end of a growing log file as the lines that a terminal would show. UI thread; standard library only.

Progress bars move the cursor: `\\r` returns to the start of a line, `ESC [ A` goes up (nested tqdm bars). The reader applies
both, and drops colours and all other escape sequences. Memory is bounded, whatever is written between two polls.
"""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from collections.abc import Sequence

MAX_LINE = 4096
"""Maximum number of characters kept per line."""

MAX_READ = 64 * 1024
"""Maximum number of bytes read per poll; of more, only the end is read, so that a poll takes a few milliseconds at most."""

MAX_CURSOR_RISE = 100
"""Maximum number of lines that the cursor can go up above the last one."""

_MAX_ESCAPE = 4096
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+|\t+)"
    r"|(?P<control>[\r\n\b])"
    r"|(?P<colour>\x1b\[[0-9;:]*m)"
    r"|(?P<sequence>\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~]))"
    r"|(?P<string>\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\))"  # a title, a link and the like
    r"|(?P<short>\x1b[ -/]*[0-OQ-WYZ\\`-~])"  # two characters, or the choice of a character set
    r"|(?P<escape>\x1b)"  # cut short, or malformed
    r"|[\x00-\x1f\x7f-\x9f]"
)
_CUT_SHORT = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)")


def _is_cut_short(text: str, start: int) -> bool:
    """Return whether the escape sequence at `start` may continue beyond the text read so far, rather than being malformed."""
    return len(text) - start < _MAX_ESCAPE and _CUT_SHORT.fullmatch(text, start) is not None


class LogTail:
    """The last lines of a growing file."""

    def __init__(
        self, path: str | os.PathLike[str], *, max_lines: int = 2000, offset: int = 0, max_read: int = MAX_READ
    ) -> None:
        """Follow `path` from byte `offset` on, keeping `max_lines` lines. The file need not exist yet.

        Of more than `max_read` bytes that were written between two polls, only the end is read.
        """
        self.path = os.fspath(path)
        self.max_read = max_read
        self._max_lines = max_lines
        self._offset = offset
        self._screen = _Screen(max_lines)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""

    @property
    def lines(self) -> Sequence[str]:
        """Return the newest lines, oldest first. The last one may still be growing."""
        rows = self._screen.rows
        end = len(rows) - 1 if rows and not rows[-1] else len(rows)  # a line that was only just begun says nothing
        return rows[max(end - self._max_lines, 0) : end]

    @property
    def settled(self) -> int:
        """The number of lines so far, without those from the cursor on, which progress bars write again."""
        screen = self._screen
        return screen.dropped + max(0, len(screen.rows) - 1 - screen.rise)

    def lines_from(self, first: int) -> Sequence[str]:
        """Return the lines from number `first` on, as far as they are kept. The last one may be empty."""
        return self._screen.rows[max(0, first - self._screen.dropped) :]

    def poll(self) -> bool:
        """Read what was written since the last call. Returns whether there was anything. Raises nothing."""
        try:
            return self._read()
        except OSError:
            return False

    def _read(self) -> bool:
        # Open the file each time: the script may close descriptors by number, which may then belong to another file.
        with open(self.path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._offset:  # it was emptied, so it starts again
                self._offset = 0
            if size == self._offset:
                return False
            skip = size - self._offset - self.max_read
            if skip > 0:
                self._offset += skip
            data = os.pread(file.fileno(), size - self._offset, self._offset)
        self._offset += len(data)
        if skip > 0:
            data = self._skip_to_line_start(data, skip)
        self._take(self._decoder.decode(data))
        return True

    def _skip_to_line_start(self, data: bytes, skipped: int) -> bytes:
        """Drop the partial line at the head of `data`, add a line with the number of missing bytes, and start a new line."""
        head = data.find(b"\n") + 1
        self._decoder.reset()
        self._pending = ""
        self._screen.note(f"[{skipped + head:,} bytes not shown]")
        return data[head:]

    def _take(self, text: str) -> None:
        text = self._pending + text
        self._pending = ""
        screen = self._screen
        position = 0
        while match := _TOKEN.match(text, position):
            position = match.end()
            kind = match.lastgroup
            if kind == "text":
                screen.write(match[0])
            elif kind == "control":
                screen.control(match[0])
            elif kind == "sequence":
                screen.sequence(match["final"], match["parameters"])
            elif kind == "escape" and _is_cut_short(text, match.start()):
                self._pending = text[match.start() :]
                return


class _Screen:
    """Lines and a cursor that can move up within the last ones. Writing at the start of a line replaces it."""

    def __init__(self, max_lines: int) -> None:
        self.rows: list[str] = []
        self._max_lines = max_lines
        self.rise = 0
        """How far the cursor is above the last line."""
        self.dropped = 0
        """How many lines are not kept any more."""
        self._at_start = True

    def write(self, text: str) -> None:
        if not self.rows:
            self.rows.append("")
        index = len(self.rows) - 1 - self.rise
        before = "" if self._at_start else self.rows[index]
        self._at_start = False
        if len(before) < MAX_LINE:
            row = before + text
            self.rows[index] = (row.expandtabs(8) if "\t" in text else row)[:MAX_LINE]

    def control(self, character: str) -> None:
        if character == "\r":
            self._at_start = True
        elif character == "\b":
            self._erase_last()
        else:
            self._down()
            self._at_start = True

    def sequence(self, final: str, parameters: str) -> None:
        """Apply cursor movements up and down and the erasure of a line. Other sequences change no text."""
        count = int(parameters) if parameters.isdecimal() else 1
        if final == "A":
            self.rise = min(self.rise + count, MAX_CURSOR_RISE, max(len(self.rows) - 1, 0))
        elif final == "B":
            self.rise = max(self.rise - count, 0)
        elif final == "K" and self.rows and (parameters == "2" or self._at_start):
            self.rows[len(self.rows) - 1 - self.rise] = ""
            self._at_start = True

    def note(self, text: str) -> None:
        """Append a line of gradtui, and start a new line after it."""
        self.rise = 0
        if self.rows and self.rows[-1]:
            self._down()
        self._at_start = True
        self.write(text)
        self.control("\n")

    def _down(self) -> None:
        if not self.rows:
            self.rows.append("")
        if self.rise:
            self.rise -= 1
            return
        self.rows.append("")
        if len(self.rows) > self._max_lines + self._max_lines // 4 + 1:
            self.dropped += len(self.rows) - self._max_lines - 1
            del self.rows[: -self._max_lines - 1]

    def _erase_last(self) -> None:
        index = len(self.rows) - 1 - self.rise
        if self.rows and not self._at_start:
            self.rows[index] = self.rows[index][:-1]


def last_lines(path: str, count: int) -> list[str]:
    """Return the last `count` non-empty lines as plain text; none if the file cannot be read."""
    tail = LogTail(path, max_lines=max(count * 2, 100))
    tail.poll()
    lines = list(tail.lines)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines[-count:]


def clip(text: str, width: int | None) -> str:
    """Cut a line to at most `width` cells, with an ellipsis at the cut. Without a width, return all of it."""
    if width is None or sum(map(_cells, text)) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…"[:width]


def _cells(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
