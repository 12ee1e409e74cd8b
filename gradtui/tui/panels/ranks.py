"""The panel of ranks: a table of all processes of a job, those in trouble first, in which the user chooses the rank to show.

UI thread; `ranks_table` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.message import Message

from gradtui.dataclass import dataclass
from gradtui.run.state.parts.job import JobState
from gradtui.run.state.ranks.rank_figures import RankRow, Trouble, rank_rows
from gradtui.run.state.run_state import RunState
from gradtui.run.text import number_text, rank_trouble_text, ranks_text, rate_text, short_bytes
from gradtui.tui.rendering import Line, Span, elide, fit, pad, printable, width_of, wrap
from gradtui.tui.widgets import ScrollLines

NO_JOB = "This run is one process. gradtui torchrun … shows all ranks of a job here."
SHOWN = "◉"
"""Stands before the number of the rank whose state the other panels show."""

_RANK_WIDTH = 7
_ROOM_FOR_LOSS = 90
_ROLES = {
    Trouble.FAILED: "error",
    Trouble.GONE: "error",
    Trouble.SILENT: "warning",
    Trouble.BEHIND: "warning",
    Trouble.SLOW: "warning",
    Trouble.NONE: "muted",
}


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    text: Callable[[RankRow], str]


def _dash(text: str | None) -> str:
    return text.strip() if text is not None else "—"


def _is_over(row: RankRow) -> bool:
    return row.record.ended is not None or not row.record.is_connected


def _phase(row: RankRow) -> str:
    return "—" if _is_over(row) else "paused" if row.record.paused else row.record.phase.value


def _number(value: float | None) -> str:
    return _dash(None if value is None else number_text(value))


_LOSS = _Column("loss", 9, lambda row: _number(row.record.loss))
_NORM = _Column("‖grad‖", 9, lambda row: _number(row.norm))
_NORM_OF_PART = _Column("‖grad‖", 9, lambda row: f"≥{norm}" if (norm := _number(row.norm)) != "—" else norm)
_COLUMNS = (
    _Column("step", 9, lambda row: f"{row.record.step:,}"),
    _Column("rate", 8, lambda row: rate_text(None if _is_over(row) else row.record.steps_per_second).strip()),
    _Column("phase", 10, _phase),
    _Column("own", 9, lambda row: "—" if row.own_seconds is None else f"{_number(1e3 * row.own_seconds)} ms"),
    _Column("memory", 9, lambda row: _dash(None if row.memory is None else short_bytes(row.memory))),
)


def _columns(job: JobState, width: int) -> tuple[_Column, ...]:
    # Of sharded parameters a rank has parts, whose norm is a lower bound of that of the whole.
    norm = _NORM_OF_PART if job.holders is not None and any(job.holders) else _NORM
    return (*_COLUMNS, norm, _LOSS) if width >= _ROOM_FOR_LOSS else (*_COLUMNS, norm)


def ranks_head(job: JobState, width: int) -> Line:
    """Return the titles of the columns, and how many ranks there are, in exactly `width` cells."""
    columns = _columns(job, width)
    head: list[Span] = [
        (pad("  rank", _RANK_WIDTH), "faint"),
        *((pad(column.title, column.width), "faint") for column in columns),
    ]
    room = max(1, width - sum(width_of(text) for text, _ in head))
    return fit((*head, (elide(ranks_text(job), room), "faint")), width)


def rank_line(job: JobState, row: RankRow, width: int) -> Line:
    """Return the line of a rank in exactly `width` cells."""
    role = _ROLES[row.trouble]
    mark: Span = (SHOWN if row.record.rank == job.shown else " ", "accent")
    number: Span = (pad(f" {row.record.rank}", _RANK_WIDTH - 1), "text" if row.trouble is Trouble.NONE else role)
    cells: list[Span] = [(pad(column.text(row), column.width), "text") for column in _columns(job, width)]
    spans = [mark, number, *cells]
    used = sum(width_of(text) for text, _ in spans)
    words = printable(rank_trouble_text(row))
    return fit((*spans, (elide(words, max(1, width - used)), role)), width)


class RanksPanel(ScrollLines):
    """Shows all processes of a job, with a cursor.

    The cursor stays on its rank, also where the rank gets another row. Until the user moves it, it is on the shown rank.
    """

    _ROWS: ClassVar[dict[str, int]] = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -(1 << 30), "end": 1 << 30}
    _PAGES: ClassVar[dict[str, int]] = {"pageup": -1, "pagedown": 1}

    class RankChosen(Message):
        """The user double-clicked a rank."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._rows: list[RankRow] = []
        self._at: int | None = None

    @property
    def current(self) -> int | None:
        """The rank under the cursor; None if this is no job."""
        job = self._state.job
        if job is None or not job.ranks:
            return None
        return self._at if self._at in job.ranks else job.shown

    def update(self) -> None:
        """Show the present figures."""
        self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        job = self._state.job
        if job is None:
            return wrap(((NO_JOB, "muted"),), width)
        self._rows = rank_rows(job)
        return [ranks_head(job, width), *super().lines_for(width, max(1, height - 1))]

    def line_count(self, width: int) -> int:  # noqa: ARG002
        return len(self._rows)

    def line_at(self, index: int, width: int) -> Line:
        row, job = self._rows[index], self._state.job
        if job is None:
            return ()
        line = rank_line(job, row, width)
        if row.record.rank != self.current or not self.has_focus:
            return line
        return tuple((text, f"{role}@cursor") for text, role in line)

    def scroll_lines(self, count: int) -> None:
        """Move the cursor by `count` rows, and scroll as far as needed."""
        job = self._state.job
        if job is None:
            return
        order = [row.record.rank for row in rank_rows(job)]
        if self.current is None:
            return
        index = min(max(0, order.index(self.current) + count), len(order) - 1)
        self._move_to(order[index], index)

    def _move_to(self, rank: int, index: int) -> None:
        self._at = rank
        page = self._page
        self.top = min(max(self.top, index - page + 1), index)
        self.redraw()

    @property
    def _page(self) -> int:
        return max(1, self.content_size.height - 1)

    def on_key(self, event: events.Key) -> None:
        """Choose a rank by the usual keys. These are not actions, because they have no meaning elsewhere."""
        rows = self._ROWS.get(event.key, self._PAGES.get(event.key, 0) * self._page)
        if rows:
            event.stop()
            event.prevent_default()
            self.scroll_lines(rows)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        index = self.top + offset.y - 1 if offset is not None else -1
        if offset is None or offset.y < 1 or index >= len(self._rows):
            return
        self._move_to(self._rows[index].record.rank, index)
        if event.chain == 2:
            self.post_message(self.RankChosen())
