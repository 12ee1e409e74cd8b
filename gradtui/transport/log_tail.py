"""Read the end of a growing log file as the lines that a terminal would show. UI thread; standard library only.

Progress bars move the cursor: `\\r` returns to the start of a line, `ESC [ A` goes up (nested tqdm bars, Rich). The reader
applies both, keeps the colours beside the text (`text_styles.py`), and drops all other escape sequences. Memory is bounded,
whatever is written between two polls.
"""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from collections.abc import Sequence
from itertools import islice

from gradtui.transport.live_displays import LiveDisplays
from gradtui.transport.text_styles import MAX_RUNS, StyledLine, style_after

MAX_LINES = 2000
"""Number of lines kept by default."""

MAX_LINE = 4096
"""Maximum number of characters kept per line."""

MAX_SIZE = 1 << 24
"""Maximum number of characters kept in all lines together."""

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
        self,
        path: str | os.PathLike[str],
        *,
        max_lines: int = MAX_LINES,
        offset: int = 0,
        max_read: int = MAX_READ,
        skips: bool = True,
        displays: LiveDisplays | None = None,
    ) -> None:
        """Follow `path` from byte `offset` on, keeping `max_lines` lines. The file need not exist yet.

        Of more than `max_read` bytes that were written between two polls, only the end is read if the tail `skips`. Otherwise
        the next polls read the rest. What live `displays` have drawn last stands below the lines of the file.
        """
        self.path = os.fspath(path)
        self.max_read = max_read
        self.start = offset
        """The byte from which on the file is followed."""
        self.unread = 0
        """Bytes that the next polls will read."""
        self.displays = displays
        self._drawings: tuple[str, ...] = ()
        self._drawn: list[StyledLine] = []
        self._skips = skips
        self._max_lines = max_lines
        self._offset = offset
        self._screen = _Screen(max_lines)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""

    @property
    def lines(self) -> Sequence[str]:
        """Return the text of the newest lines, oldest first. The last one may still be growing."""
        return [row.text for row in self.styled_lines]

    @property
    def styled_lines(self) -> Sequence[StyledLine]:
        """Return the newest lines with their styles, oldest first."""
        rows = self._screen.rows
        end = len(rows) - 1 if rows and not rows[-1].text else len(rows)  # a line that was only just begun says nothing
        return [*rows[max(end - self._max_lines, 0) : end], *self._drawn]

    @property
    def offset(self) -> int:
        """How far the file was read, in bytes."""
        return self._offset

    @property
    def dropped(self) -> int:
        """How many lines are not kept any more."""
        return self._screen.dropped

    @property
    def settled(self) -> int:
        """The number of lines so far, without those from the cursor on, which progress bars write again."""
        screen = self._screen
        return screen.dropped + max(0, len(screen.rows) - 1 - screen.rise)

    def lines_from(self, first: int) -> Sequence[StyledLine]:
        """Return the lines from number `first` on, as far as they are kept. The last one may be empty."""
        return self._screen.rows[max(0, first - self._screen.dropped) :]

    def poll(self) -> bool:
        """Read what was written since the last call. Returns whether there was anything. Raises nothing."""
        is_redrawn = self._take_drawings()
        try:
            return self._read() or is_redrawn
        except OSError:
            return is_redrawn

    def _take_drawings(self) -> bool:
        drawings = self.displays.drawings if self.displays is not None else ()
        if drawings is self._drawings:
            return False
        self._drawings, self._drawn = drawings, []
        for drawing in drawings:
            screen = _Screen(MAX_CURSOR_RISE)
            _write(screen, drawing.rstrip("\n"))
            self._drawn += screen.rows
        return True

    def _read(self) -> bool:
        # Open the file each time: the script may close descriptors by number, which may then belong to another file.
        with open(self.path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._offset:  # it was emptied, so it starts again
                self._offset = 0
            if size == self._offset:
                return False
            skip = size - self._offset - self.max_read if self._skips else 0
            if skip > 0:
                self._offset += skip
            data = os.pread(file.fileno(), min(size - self._offset, self.max_read), self._offset)
        self._offset += len(data)
        self.unread = max(0, size - self._offset)
        if skip > 0:
            data = self._skip_to_line_start(data, skip)
        self._pending = _write(self._screen, self._pending + self._decoder.decode(data))
        return True

    def _skip_to_line_start(self, data: bytes, skipped: int) -> bytes:
        """Drop the partial line at the head of `data`, add a line with the number of missing bytes, and start a new line."""
        head = data.find(b"\n") + 1
        self._decoder.reset()
        self._pending = ""
        self._screen.style = ""
        self._screen.note(f"[{skipped + head:,} bytes not shown]")
        return data[head:]


def _write(screen: _Screen, text: str) -> str:
    """Write text with its control characters and escape sequences, and return a sequence at its end that is cut short."""
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        kind = match.lastgroup
        if kind == "text":
            screen.write(match[0])
        elif kind == "control":
            screen.control(match[0])
        elif kind == "colour":
            screen.style = style_after(screen.style, match[0])
        elif kind == "sequence":
            screen.sequence(match["final"], match["parameters"])
        elif kind == "escape" and _is_cut_short(text, match.start()):
            return text[match.start() :]
    return ""


_EMPTY = StyledLine()


class _Screen:
    """Lines and a cursor that can move up within the last ones. Writing at the start of a line replaces it."""

    def __init__(self, max_lines: int) -> None:
        self.rows: list[StyledLine] = []
        self.style = ""
        """The style of what is written next."""
        self._max_lines = max_lines
        self.rise = 0
        """How far the cursor is above the last line."""
        self.dropped = 0
        """How many lines are not kept any more."""
        self._size = 0
        """Characters of the rows, as far as is known without counting those of rows that were written again."""
        self._at_start = True

    def write(self, text: str) -> None:
        if not self.rows:
            self.rows.append(_EMPTY)
        index = len(self.rows) - 1 - self.rise
        before = _EMPTY if self._at_start else self.rows[index]
        self._at_start = False
        start = len(before.text)
        if start < MAX_LINE:
            row = before.text + text
            runs = before.runs
            if self.style != (runs[-1][1] if runs else "") and len(runs) < MAX_RUNS:
                runs = (*runs, (start, self.style))
            self.rows[index] = StyledLine((row.expandtabs(8) if "\t" in text else row)[:MAX_LINE], runs)

    def control(self, character: str) -> None:
        if character == "\r":
            self._at_start = True
        elif character == "\b":
            self._erase_last()
        else:
            self._down()
            self._at_start = True

    def sequence(self, final: str, parameters: str) -> None:
        """Apply cursor movements up, down and to the start of a line, and erasures. Other sequences change no text."""
        count = int(parameters) if parameters.isdecimal() else 1
        if final in "AF":
            self.rise = min(self.rise + count, MAX_CURSOR_RISE, max(len(self.rows) - 1, 0))
        elif final in "BE":
            self.rise = max(self.rise - count, 0)
        elif final == "K" and self.rows and (parameters == "2" or self._at_start):
            self.rows[len(self.rows) - 1 - self.rise] = _EMPTY
            self._at_start = True
        elif final == "J" and parameters in ("", "0"):
            self._erase_below()
        if final in "EF" or (final == "G" and count <= 1):
            self._at_start = True

    def note(self, text: str) -> None:
        """Append a line of gradtui, and start a new line after it."""
        self.rise = 0
        if self.rows and self.rows[-1].text:
            self._down()
        self._at_start = True
        self.write(text)
        self.control("\n")

    def _down(self) -> None:
        if not self.rows:
            self.rows.append(_EMPTY)
        if self.rise:
            self.rise -= 1
            return
        self.rows.append(_EMPTY)
        self._size += len(self.rows[-2].text)
        if len(self.rows) > self._max_lines + self._max_lines // 4 + 1 or self._size > MAX_SIZE:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the lines that are too many, and those that have too many characters together, down to three quarters."""
        size, kept = 0, 0
        for row in islice(reversed(self.rows), self._max_lines + 1):
            size += len(row.text)
            if size > MAX_SIZE * 3 // 4 and kept > MAX_CURSOR_RISE:
                break
            kept += 1
        self._size = size
        self.dropped += len(self.rows) - kept
        del self.rows[:-kept]

    def _erase_below(self) -> None:
        """Erase what is below the cursor, and its own line if the cursor is at its start."""
        first = len(self.rows) - self.rise - self._at_start
        for index in range(max(0, first), len(self.rows)):
            self.rows[index] = _EMPTY

    def _erase_last(self) -> None:
        index = len(self.rows) - 1 - self.rise
        if self.rows and not self._at_start:
            self.rows[index] = self.rows[index].part(0, len(self.rows[index].text) - 1)


def last_lines(path: str, count: int, offset: int = 0) -> list[str]:
    """Return the last `count` non-empty lines behind byte `offset` as plain text; none if the file cannot be read."""
    tail = LogTail(path, max_lines=max(count * 2, 100), offset=offset)
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
