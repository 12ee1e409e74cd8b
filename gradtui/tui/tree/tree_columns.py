"""Chooses the columns of the model tree that fit into a width. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.text import BYTES_WIDTH, COUNT_WIDTH, NUMBER_WIDTH
from gradtui.tui.rendering import Line, Span, pad, pad_start

SPARK_WIDTH = 8
_GAP = 1
MARK_WIDTH = 1
"""The cell before the saved bytes that shows whether backward recomputes the rest."""
_MIN_NAME = 22
_GOOD_NAME = 30
"""Minimum cells for the names. The first two columns take precedence over long names, the others do not."""


@dataclass(frozen=True)
class Column:
    """A column to the right of the names."""

    key: str
    title: str
    width: int
    least_name: int
    """Minimum cells that must remain for the names if this column is shown."""


STATE_WIDTH, STATE_WIDTH_NARROW = 5, 4

_BY_PRIORITY = (
    Column("count", "count", COUNT_WIDTH, 0),
    Column("norm", "‖grad‖", NUMBER_WIDTH, 12),
    Column("spark", f"last {SPARK_WIDTH}", SPARK_WIDTH, _MIN_NAME),
    Column("bytes", "bytes", BYTES_WIDTH, _MIN_NAME),
    Column("shape", "shape", 10, _MIN_NAME),
    Column("kept", "saved", MARK_WIDTH + BYTES_WIDTH, _MIN_NAME),
    Column("trainable", "train", COUNT_WIDTH, _GOOD_NAME),
    Column("dtype", "type", 4, _GOOD_NAME),
)
_ON_SCREEN = ("shape", "dtype", "trainable", "count", "bytes", "kept", "norm", "spark")


@dataclass(frozen=True)
class Columns:
    """The columns of a tree that is `width` cells wide, from left to right."""

    width: int
    state: int
    name: int
    others: tuple[Column, ...]

    def header(self) -> Line:
        """Return the line of column titles."""
        title = "state" if self.state >= STATE_WIDTH else " st"
        spans: list[Span] = [(pad(title, self.state + 1), "faint"), (pad("name", self.name), "faint")]
        for column in self.others:
            text = pad(column.title, column.width) if column.key == "spark" else pad_start(column.title, column.width)
            spans.append((" " * _GAP + text, "faint"))
        return tuple(spans)


def columns_for(width: int) -> Columns:
    """Choose columns by priority until the names would become too narrow."""
    state = STATE_WIDTH if width >= 50 else STATE_WIDTH_NARROW
    name = max(0, width - state - 1)
    chosen: list[Column] = []
    for column in _BY_PRIORITY:
        if name - column.width - _GAP < column.least_name:
            break
        chosen.append(column)
        name -= column.width + _GAP
    return Columns(width, state, name, tuple(sorted(chosen, key=lambda column: _ON_SCREEN.index(column.key))))
