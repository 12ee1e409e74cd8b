"""The logs of what the ranks of a job print: where they are, and their ends as one text. Standard library only.

The launcher's log `NAME.log` has the directory `NAME.log.ranks` beside it, with `0.log` for rank 0. Only its owner can read
them. Each rank writes a log of its own, so that every line has a rank.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import deque
from collections.abc import Sequence

from gradtui.named_tuple import NamedTuple
from gradtui.transport.log_tail import MAX_LINES, MAX_READ, LogTail, last_lines
from gradtui.transport.text_styles import StyledLine

MAX_RANKS = 256
"""Logs that are followed at most: the first ones that appear."""


_MAX_AT_END = 4
"""Ranks whose last lines are shown after the launching process has died."""

_MIN_READ = 1_024
_NAME = re.compile(r"(0|[1-9][0-9]{0,6})\.log")


class OutputLine(NamedTuple):
    """A line of the output of a job, the rank that has printed it (None for the launcher), and where its style changes."""

    rank: int | None
    text: str
    runs: tuple[tuple[int, str], ...] = ()

    @property
    def styled(self) -> StyledLine:
        """The line with its styles."""
        return StyledLine(self.text, self.runs)

    @property
    def label(self) -> str:
        """What stands before the line."""
        return "" if self.rank is None else f"[{self.rank}] "


def directory_of(log: str) -> str:
    """Return the directory of the logs of ranks that belong to a launcher's log."""
    return f"{log}.ranks"


def make_directory(log: str) -> bool:
    """Make the directory for the logs of ranks. Returns whether it is there, and the user's alone."""
    directory = directory_of(log)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        found = os.lstat(directory)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
    return False


def open_log(log: str, rank: int) -> int:
    """Open the log of a rank to append to it, and return its descriptor. Raises OSError."""
    path = os.path.join(directory_of(log), f"{rank}.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def logs_in(directory: str) -> dict[int, str]:
    """Return the paths of the logs of ranks by their numbers. Other files are ignored."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            match = _NAME.fullmatch(name)
            path = os.path.join(directory, name)
            if match is not None and stat.S_ISREG(os.lstat(path).st_mode):
                found[int(match[1])] = path
    return found


class JobTail:
    """The last lines of a launcher and of its ranks, in the order in which they were read.

    A line of a rank that may still change, such as a progress bar, stands at the end. One thread uses it at a time.
    """

    def __init__(self, log: LogTail, *, is_new: bool = True) -> None:
        """Follow a launcher's log, and the logs of its ranks as they appear.

        Args:
            log: the launcher's.
            is_new: leave out what logs of ranks have already: it is that of an earlier run.
        """
        self._directory = directory_of(log.path)
        self._before = {} if not is_new else {path: _size(path) for path in logs_in(self._directory).values()}
        self._tails: dict[int | None, LogTail] = {None: log}
        self._taken: dict[int | None, int] = {None: 0}
        self._settled: deque[OutputLine] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._given = 0

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that have a log."""
        return sorted(rank for rank in self._tails if rank is not None)

    def poll(self) -> bool:
        """Read what was written since the last call. Returns whether there was anything. Raises nothing."""
        self._look()
        has_more = False
        for rank, tail in self._tails.items():
            if tail.poll():
                has_more = True
                self._take(rank, tail)
        return has_more

    @property
    def lines(self) -> Sequence[OutputLine]:
        """Return the newest lines of all, oldest first."""
        return [*self._settled, *self._moving()]

    def lines_of(self, rank: int) -> Sequence[OutputLine]:
        """Return the newest lines of one rank."""
        tail = self._tails.get(rank)
        return [OutputLine(rank, *line) for line in tail.styled_lines] if tail is not None else []

    def last_lines(self, count: int) -> list[OutputLine]:
        """Return the last `count` lines that are not empty."""
        return [line for line in self.lines[-3 * count :] if line.text.strip()][-count:] if count > 0 else []

    def skip(self) -> None:
        """Leave all lines so far out of what `new_lines` returns."""
        self._given = self._count

    def new_lines(self, *, all_of_them: bool = False) -> list[OutputLine]:
        """Return the lines since the last call, without those that may still change, or with `all_of_them`."""
        fresh = min(self._count - self._given, len(self._settled))
        self._given = self._count
        lines = list(self._settled)[len(self._settled) - fresh :] if fresh else []
        return [*lines, *self._moving()] if all_of_them else lines

    def _look(self) -> None:
        """Find the logs of ranks that have begun to print."""
        if len(self._tails) > MAX_RANKS:
            return
        for rank, path in sorted(logs_in(self._directory).items()):
            if rank not in self._tails and len(self._tails) <= MAX_RANKS:
                self._tails[rank] = LogTail(path, offset=self._before.get(path, 0))
                self._taken[rank] = 0
        # What one poll reads is bounded, however many ranks there are.
        most = max(_MIN_READ, MAX_READ // len(self._tails))
        for tail in self._tails.values():
            tail.max_read = most

    def _take(self, rank: int | None, tail: LogTail) -> None:
        until, first = tail.settled, self._taken[rank]
        if until > first:
            self._taken[rank] = until
            kept = tail.lines_from(first)
            # Of the lines from `first` on, those from the cursor on are not settled.
            rest = len(tail.lines_from(until))
            settled = kept[: len(kept) - rest]
            self._settled.extend(OutputLine(rank, *line) for line in settled)
            self._count += len(settled)

    def _moving(self) -> list[OutputLine]:
        return [
            OutputLine(rank, *line)
            for rank, tail in sorted(self._tails.items(), key=lambda each: -1 if each[0] is None else each[0])
            for line in tail.lines_from(max(tail.settled, self._taken[rank]))
            if line.text
        ]


def last_job_lines(log: str, count: int) -> list[str]:
    """Return the last lines of a launcher, after those of the ranks that have written last, each with its label.

    A script that is no launcher has no ranks.
    """
    logs = logs_in(directory_of(log))
    newest = sorted(logs, key=lambda rank: _changed(logs[rank]), reverse=True)[:_MAX_AT_END]
    share = max(3, count // (len(newest) + 1))
    if not newest:
        return last_lines(log, count)
    lines = [f"[{rank}] {text}" for rank in sorted(newest) for text in last_lines(logs[rank], share)]
    return [*lines, *last_lines(log, max(share, count - len(lines)))]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
