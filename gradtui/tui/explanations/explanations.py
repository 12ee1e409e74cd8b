"""Lays out the page of a row: its facts in sentences (`run.text.explanation`) with states, curves and paths drawn. Pure."""

from __future__ import annotations

from gradtui.run.explanation.details import details
from gradtui.run.state.run_state import RunState
from gradtui.run.text.explanation.gradient_path import Stop
from gradtui.run.text.explanation.page import PageRow, page
from gradtui.tui.rendering import (
    LEVEL_ROLES,
    DetailRow,
    Line,
    Span,
    elide,
    elide_start,
    line_width,
    pad,
    sparkline,
    state_letter,
    width_of,
)

_MIN_POINTS = 8
_LETTERS = 3
_NAME_WIDTH, _NOTE_WIDTH = 16, 24
"""If both columns of a path do not fit, the name gets at least this width, else the note."""


def explain(state: RunState, row: int) -> list[DetailRow]:
    """Return every fact about a row of the tree (see `run.state.tree.rows`)."""
    rows = page(details(state, row))
    stops = [each.stop for each in rows if each.stop is not None]
    names = max((width_of(stop.name) for stop in stops), default=0)
    letters = min(_LETTERS, max((len(stop.letters) for stop in stops), default=0))
    return [_stop_row(each.stop, names, letters) if each.stop is not None else _row(each) for each in rows]


def _row(row: PageRow) -> DetailRow:
    if row.values:
        return _curve_row(row)
    if row.state is not None:
        return DetailRow(row.label, (state_letter(row.state.value), (f" {row.words}", row.role)))
    if row.level is not None:
        head, colon, message = row.words.partition(": ")
        return DetailRow(row.label, ((head + colon, LEVEL_ROLES[row.level]), (message, row.role)))
    return DetailRow(row.label, ((row.words, row.role),))


def _curve_row(row: PageRow) -> DetailRow:
    words = f"  {row.words}"

    def line(width: int) -> Line:
        points = min(len(row.values), max(_MIN_POINTS, width - len(words)))
        return (*sparkline(row.values, points), (words, row.role))

    return DetailRow(row.label, line=line)


def _stop_row(stop: Stop, names: int, most_letters: int) -> DetailRow:
    letters: list[Span] = [state_letter(letter) for letter in stop.letters[:_LETTERS]]
    gap = " " * (most_letters + 1 - len(letters))
    role = "text" if stop.mark == "↓" else "strong"

    def line(width: int) -> Line:
        room = width - line_width(letters) - len(gap) - 2
        column = min(names, max(_NAME_WIDTH, room - _NOTE_WIDTH))
        free = room - column - 2
        note = f"  {elide(stop.note if width_of(stop.note) <= free else stop.short_note or stop.note, free)}"
        name = pad(elide_start(stop.name, column), column)
        return ((f"{stop.mark} ", "muted"), *letters, (gap, ""), (name, role), (note, "muted"))

    return DetailRow("", line=line)
