"""Rows of a label and a text, laid out in columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradtui.tui.rendering.lines import Line, fit, wrap

_LABEL_WIDTH = 11


@dataclass(frozen=True)
class DetailRow:
    """A label and its text."""

    label: str
    spans: Line = ()
    line: Callable[[int], Line] | None = None
    """Used instead of `spans`: makes one line for a width, which is not wrapped."""


def text_rows(label: str, words: str | None, role: str = "text") -> list[DetailRow]:
    """Return one row of plain words; empty if `words` is None."""
    return [DetailRow(label, ((words, role),))] if words is not None else []


def detail_lines(rows: Sequence[DetailRow], width: int) -> list[Line]:
    """Wrap rows into lines, with their labels in a column."""
    lines: list[Line] = []
    room = max(10, width - _LABEL_WIDTH)
    for row in rows:
        first, *rest = wrap(row.spans, room) if row.line is None else [fit(row.line(room), room)]
        lines.append(((row.label.ljust(_LABEL_WIDTH), "muted"), *first))
        lines += [((" " * _LABEL_WIDTH, ""), *line) for line in rest]
    return lines
