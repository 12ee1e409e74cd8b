"""The output panel: what the script printed, read from the log file of its output. UI thread."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from gradtui.state.run_state import RunState
from gradtui.transport.log_tail import LogTail
from gradtui.transport.progress_bars import ProgressBar, progress_bars
from gradtui.tui.rendering import Line, chunks, fit, printable, wrap
from gradtui.tui.widgets import FollowedLines

_POLL_SECONDS = 1.0


def traceback_lines(error: str, printed: Sequence[str]) -> list[Line]:
    """Return the script's traceback; empty if the script's own output already ends with it."""
    lines = error.rstrip().splitlines()
    if not lines or lines[-1].strip() in (line.strip() for line in printed[-5:]):
        return []
    return [((printable(line), "error" if index == len(lines) - 1 else "text"),) for index, line in enumerate(lines)]


class OutputPanel(FollowedLines):
    """The tail of the log, wrapped as a terminal does, and the traceback if the script failed."""

    def __init__(self, state: RunState, log: LogTail | None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state, self._log = state, log
        self._printed: list[str] = []
        self._is_unread = False
        self._polled_at = -math.inf
        self._bars: list[ProgressBar] = []
        self._ending: list[Line] = []
        self._laid_out: tuple[int, list[Line]] | None = None
        self.note = ""
        """Why there is no output, if that is known."""

    @property
    def bars(self) -> Sequence[ProgressBar]:
        """The progress bars at the end of the output, at most a second old, also while the panel is hidden."""
        if time.monotonic() - self._polled_at >= _POLL_SECONDS:
            self._poll()
        return self._bars

    def _poll(self) -> None:
        self._polled_at = time.monotonic()
        if self._log is not None and self._log.poll():
            self._is_unread, self._bars = True, progress_bars(self._log.lines)

    def update(self) -> None:
        """Read and show new output. While the user has scrolled up, the text does not move."""
        ended = self._state.ended
        if ended is None and self._ending:
            # Another place of a recording is shown.
            self._ending, self._laid_out = [], None
        ends_now = ended is not None and not self._ending
        self._poll()
        if (self.follows or ends_now) and self._log is not None and self._is_unread:
            self._printed, self._laid_out, self._is_unread = list(self._log.lines), None, False
        if ended is not None and not self._ending:
            self._ending = traceback_lines(ended.error, self._printed) if ended.error else []
            self._ending.append(((f"── exit code {ended.exit_code} ──", "error" if ended.exit_code else "muted"),))
            self._laid_out = None
        self.redraw()

    def line_count(self, width: int) -> int:
        return len(self._lines_at(width))

    def line_at(self, index: int, width: int) -> Line:
        return fit(self._lines_at(width)[index], width)

    def _lines_at(self, width: int) -> list[Line]:
        if self._laid_out is None or self._laid_out[0] != width:
            lines: list[Line] = [((part, "text"),) for text in self._printed for part in chunks(printable(text), width)]
            lines += [((part, role),) for line in self._ending for text, role in line for part in chunks(text, width)]
            self._laid_out = width, [*(self._empty(width) if self.note or not lines else ()), *lines]
        return self._laid_out[1]

    def _empty(self, width: int) -> list[Line]:
        return wrap(((self.note or _waiting(self._log), "muted"),), width)


def _waiting(log: LogTail | None) -> str:
    return "Waiting for the script to print something." if log else "The output of this run is not captured."
