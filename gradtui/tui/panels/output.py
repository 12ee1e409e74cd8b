"""The output panel: what the script printed, read from the log file of its output. UI thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from textual import events
from textual.message import Message

from gradtui.run.state.ranks.rank_failure import Failure, first_failure
from gradtui.run.state.run_state import RunState
from gradtui.transport.log_tail import MAX_LINES, LogTail
from gradtui.transport.progress_bars import ProgressBar, progress_bars
from gradtui.transport.rank_logs import JobTail, OutputLine
from gradtui.transport.text_styles import StyledLine
from gradtui.tui.rendering import Line, chunks, fit, printable, styled_spans, wrap
from gradtui.tui.widgets import FollowedLines

_MIN_WITH_ERROR = 2
"""Rows from which on the error of a rank has one."""


def traceback_lines(error: str, printed: Sequence[str]) -> list[Line]:
    """Return the script's traceback; empty if the script's own output already ends with it."""
    lines = error.rstrip().splitlines()
    if not lines or lines[-1].strip() in (line.strip() for line in printed[-5:]):
        return []
    return [((printable(line), "error" if index == len(lines) - 1 else "text"),) for index, line in enumerate(lines)]


class OutputPanel(FollowedLines):
    """The tail of the log, wrapped as a terminal does, and the traceback if the script failed.

    Of a job it shows the output of all ranks, or of one. The error of the rank that failed first stands above it.
    """

    class FillWanted(Message):
        """The user wants the output on the whole screen."""

    def __init__(self, state: RunState, log: LogTail | JobTail | None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state, self._log = state, log
        self._printed: list[OutputLine] = []
        self._rank: int | None = None
        """The rank whose output is shown; None for that of all."""
        self._pinned: Line = ()
        self._is_unread = False
        self.bars: Sequence[ProgressBar] = ()
        """The progress bars at the end of the output as last read."""
        self._ending: list[Line] = []
        self._laid_out: tuple[int, list[Line]] | None = None
        self.note = ""
        """Why there is no output, if that is known."""

    def poll(self) -> bool:
        """Read new output, also while the panel is hidden. Return whether `update` would show more."""
        if self._log is not None and self._log.poll():
            self._is_unread = True
            self.bars = progress_bars([line.text for line in self._lines_of(self._rank_of_bars)])
        return self._is_unread and self.follows

    @property
    def _rank_of_bars(self) -> int | None:
        """The rank whose progress bars count: bars of several ranks do not lie within each other."""
        ranks = self._log.ranks if isinstance(self._log, JobTail) else ()
        shown = self._state.job.shown if self._state.job is not None else None
        return shown if shown in ranks else min(ranks, default=None)

    def _lines_of(self, rank: int | None) -> Sequence[OutputLine]:
        if isinstance(self._log, JobTail):
            return self._log.lines if rank is None else self._log.lines_of(rank)
        return [OutputLine(None, *line) for line in self._log.styled_lines] if self._log is not None else []

    @property
    def source(self) -> LogTail | JobTail | None:
        """Where the output comes from; None if it is not captured."""
        return self._log

    @property
    def newest_lines(self) -> Sequence[OutputLine]:
        """The newest lines of the rank that is shown, or of all."""
        return self._lines_of(self._rank)

    @property
    def has_ranks(self) -> bool:
        """Whether several processes print."""
        return isinstance(self._log, JobTail) and bool(self._log.ranks)

    @property
    def shown_words(self) -> str:
        """Whose output is shown; empty if there are no ranks."""
        return ("all ranks" if self._rank is None else f"rank {self._rank} only") if self.has_ranks else ""

    @property
    def title(self) -> str:
        """Whose output it is, and what the key for it shows next; empty if there are no ranks."""
        ranks = self._log.ranks if isinstance(self._log, JobTail) else ()
        if not ranks:
            return ""
        after = self._next_rank(ranks)
        return f"{self.shown_words} · o {'all ranks' if after is None else f'rank {after}'}"

    def show_next_rank(self) -> None:
        """Show the output of the next rank alone; after the last one that of all."""
        ranks = self._log.ranks if isinstance(self._log, JobTail) else ()
        if ranks:
            self._rank = self._next_rank(ranks)
            self._printed, self._laid_out, self.follows = list(self._lines_of(self._rank)), None, True
            self.redraw()

    def _next_rank(self, ranks: Sequence[int]) -> int | None:
        return next((rank for rank in ranks if self._rank is None or rank > self._rank), None)

    def update(self) -> None:
        """Read and show new output. While the user has scrolled up, the text does not move."""
        ended = self._state.ended
        if ended is None and self._ending:
            # Another place of a recording is shown.
            self._ending, self._laid_out = [], None
        ends_now = ended is not None and not self._ending
        self.poll()
        if (self.follows or ends_now) and self._log is not None and self._is_unread:
            self._printed, self._laid_out, self._is_unread = list(self._lines_of(self._rank)), None, False
        failure = self._failure
        self._pinned = ((printable(failure.words), "error"),) if failure is not None else ()
        if ended is not None and not self._ending:
            printed = [line.text for line in self._printed]
            self._ending = traceback_lines(ended.error, printed) if ended.error else []
            if failure is not None and failure.traceback:
                first = [((printable(line), "error"),) for line in failure.traceback]
                self._ending += [((f"── rank {failure.rank} failed first ──", "error"),), *first]
            self._ending.append(((f"── exit code {ended.exit_code} ──", "error" if ended.exit_code else "muted"),))
            self._laid_out = None
        self.redraw()

    @property
    def _failure(self) -> Failure | None:
        job = self._state.job
        return first_failure(job, is_over=self._state.ended is not None) if job is not None else None

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        if not self._pinned or height < _MIN_WITH_ERROR:
            return super().lines_for(width, height)
        return [fit(self._pinned, width), *super().lines_for(width, height - 1)]

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2:
            self.post_message(self.FillWanted())

    def line_count(self, width: int) -> int:
        return len(self._lines_at(width))

    def line_at(self, index: int, width: int) -> Line:
        return fit(self._lines_at(width)[index], width)

    def _lines_at(self, width: int) -> list[Line]:
        if self._laid_out is None or self._laid_out[0] != width:
            lines: list[Line] = [part for line in self._printed for part in _wrapped(line, width)]
            lines += [((part, role),) for line in self._ending for text, role in line for part in chunks(text, width)]
            self._laid_out = width, [*(self.empty_lines(width) if self.note or not lines else ()), *lines]
        return self._laid_out[1]

    def empty_lines(self, width: int) -> list[Line]:
        """Return why there is no output."""
        return wrap(((self.note or _waiting(self._log), "muted"),), width)


@lru_cache(maxsize=2 * MAX_LINES)
def _wrapped(line: OutputLine, width: int) -> tuple[Line, ...]:
    """Return a line of the output in parts of at most `width` cells. The label of its rank stands before each of them."""
    label: Line = ((line.label, "faint"),) if line.label else ()
    return tuple((*label, *styled_spans(part)) for part in _parts(line, max(1, width - len(line.label))))


def _parts(line: OutputLine, width: int) -> Iterator[StyledLine]:
    start = 0
    for piece in chunks(line.text, width):
        yield line.styled.part(start, start + len(piece)) if line.runs else StyledLine(piece)
        start += len(piece)


def _waiting(log: LogTail | JobTail | None) -> str:
    return "Waiting for the script to print something." if log else "The output of this run is not captured."
