"""The panel of ranks: a table of all processes of a job, those in trouble first. UI thread; `ranks_lines` is pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import Phase
from gradtui.state.rank_figures import RankRow, Trouble, rank_rows
from gradtui.state.run_state import RunState
from gradtui.text import number_text, rank_trouble_text, ranks_text, rate_text, short_bytes
from gradtui.tui.rendering import Line, Span, elide, fit, pad, printable, width_of
from gradtui.tui.widgets import LineView

NO_JOB = "This run is one process. gradtui torchrun … shows all ranks of a job here."

_COLUMNS = (("rank", 5), ("step", 9), ("rate", 8), ("phase", 10), ("own", 9), ("memory", 9), ("‖grad‖", 9), ("", 12))
_ROLES = {
    Trouble.FAILED: "error",
    Trouble.GONE: "error",
    Trouble.SILENT: "warning",
    Trouble.BEHIND: "warning",
    Trouble.SLOW: "warning",
    Trouble.NONE: "muted",
}


def ranks_lines(state: RunState, width: int, height: int) -> list[Line]:
    """Return the table in at most `height` lines of exactly `width` cells."""
    if state.job is None:
        return [fit(((NO_JOB, "muted"),), width)]
    rows = rank_rows(state.job)
    head: list[Span] = [(pad(name, cells), "faint") for name, cells in _COLUMNS[:-1]]
    summary = elide(ranks_text(state.job), max(1, width - sum(cells for _, cells in _COLUMNS[:-1])))
    lines: list[Line] = [fit((*head, (summary, "faint")), width)]
    room = max(0, height - 1)
    shown = rows if len(rows) <= room else rows[: max(0, room - 1)]
    lines += [_line(row, width) for row in shown]
    if len(shown) < len(rows) and room:
        lines.append(fit(((f"and {len(rows) - len(shown)} more ranks", "faint"),), width))
    return lines[:height]


def _line(row: RankRow, width: int) -> Line:
    record = row.record
    role = _ROLES[row.trouble]
    is_over = record.ended is not None or not record.is_connected
    phase = "—" if is_over else "paused" if record.paused else _phase(record.phase)
    cells = (
        str(record.rank),
        f"{record.step:,}",
        rate_text(None if is_over else record.steps_per_second).strip(),
        phase,
        "—" if row.own_seconds is None else f"{number_text(1e3 * row.own_seconds).strip()} ms",
        short_bytes(row.memory).strip() if row.memory is not None else "—",
        number_text(record.norm).strip() if record.norm is not None else "—",
    )
    spans: list[Span] = [
        (pad(cell, cells_), "text" if at or row.trouble is Trouble.NONE else role)
        for at, (cell, (_, cells_)) in enumerate(zip(cells, _COLUMNS))
    ]
    used = sum(width_of(text) for text, _ in spans)
    words = printable(rank_trouble_text(row))
    return fit((*spans, (elide(words, max(1, width - used)), role)), width)


def _phase(phase: Phase) -> str:
    return phase.value


class RanksPanel(LineView):
    """Shows all processes of a job."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state

    def update(self) -> None:
        """Show the present figures."""
        self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        return ranks_lines(self._state, width, height)
