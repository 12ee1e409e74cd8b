"""Chooses the columns of the model tree that fit into a width. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.run.text.units import BYTES_WIDTH, COUNT_WIDTH, MICROSECONDS_WIDTH, NUMBER_WIDTH
from gradtui.tui.rendering import Line, Span, pad, pad_start

SPARK_WIDTH = 8
_GAP = 1
MARK_WIDTH = 1
"""The cell before the saved bytes that shows whether backward recomputes the rest."""
MARGIN = 3
"""The cells before the name: the mark of a pending change or a finding, the line of the gradient, and a blank."""
_MIN_NAME, _GOOD_NAME = 20, 30
"""Minimum cells for the names. Some columns take precedence over long names, others do not."""

SORTABLE = ("norm", "ratio", "saved", "bytes", "time", "lr")
"""The columns by which the rows can be sorted."""


@dataclass(frozen=True)
class Column:
    """A column to the right of the names."""

    key: str
    title: str
    width: int
    least_name: int
    """Minimum cells that must remain for the names if this column is shown."""
    meaning: str = ""


_STATE, _SHORT_STATE, _LETTERS = (
    Column("state", "state", 12, 0), Column("state", "state", 10, 0), Column("state", "st", 4, 0),
)  # fmt: skip
_ROOM_FOR_STATE, _ROOM_FOR_SHORT_STATE = 60, 40
"""From these widths of the tree on, states are words."""

_BY_PRIORITY = (
    Column("norm", "‖grad‖", NUMBER_WIDTH, 10, "L2 norm of the gradient as the optimizer applied it"),
    Column("count", "count", COUNT_WIDTH, 14, "elements; a tensor with several names counts once"),
    Column("ratio", "Δw/w", NUMBER_WIDTH, _MIN_NAME, "norm of a step's update divided by the norm of the weights"),
    Column(
        "saved", "saved", MARK_WIDTH + BYTES_WIDTH, _MIN_NAME,
        "bytes that autograd saves in the module for backward: its activations",
    ),
    Column(
        "time", "time", MICROSECONDS_WIDTH, _MIN_NAME,
        "seconds of a step in the module, forward and backward; in the list sorted by time, without what it calls",
    ),
    Column(
        "spark", f"last {SPARK_WIDTH}", SPARK_WIDTH, _GOOD_NAME,
        "the norm in the newest measurements, on a log scale of their own range",
    ),
    Column("bytes", "bytes", BYTES_WIDTH, _GOOD_NAME, "bytes of the elements; a tensor with several names counts once"),
    Column("shape", "shape", 10, _GOOD_NAME, "of the tensor"),
    Column("trainable", "train", COUNT_WIDTH, _GOOD_NAME, "elements in the module that are trainable"),
    Column("dtype", "type", 4, _GOOD_NAME, "of the tensor"),
)  # fmt: skip
_WHEN_CHOSEN = (
    Column(
        "lr", "lr", 9, 14,
        "learning rate; of a module, the lowest and the highest",
    ),
    Column(
        "ranks", "ranks", 16, 14,
        "of a job: the lowest and the highest norm over the ranks where they differ, and the rank furthest from the others; of "
        "sharded parameters, of how many parts the norm is combined",
    ),
)  # fmt: skip
"""Columns that only some runs have use for."""
_ON_SCREEN = (
    "shape",
    "dtype",
    "trainable",
    "count",
    "bytes",
    "saved",
    "time",
    "state",
    "norm",
    "ranks",
    "ratio",
    "lr",
    "spark",
)

COLUMNS = tuple(column.key for column in _BY_PRIORITY)
"""The names of the columns that a tree has as far as they fit, the most important first."""
ALL_COLUMNS = (*COLUMNS, *(column.key for column in _WHEN_CHOSEN))
"""The names of the columns that the user can choose."""
_BY_KEY = {column.key: column for column in (*_BY_PRIORITY, *_WHEN_CHOSEN)}


def column_words(name: str) -> tuple[str, str]:
    """Return the title and the meaning of a column of `ALL_COLUMNS`."""
    return _BY_KEY[name].title, _BY_KEY[name].meaning


@dataclass(frozen=True)
class Columns:
    """The columns of a tree that is `width` cells wide, from left to right."""

    width: int
    name: int
    others: tuple[Column, ...]

    def cells_of(self, key: str) -> range:
        """Return the cells of a column, empty if it is not shown."""
        start = MARGIN + self.name
        for column in self.others:
            start += _GAP
            if column.key == key:
                return range(start, start + column.width)
            start += column.width
        return range(0)

    def header(self, sorted_by: str = "") -> Line:
        """Return the line of column titles; that of the column by which the rows are sorted has an arrow."""
        spans: list[Span] = [(pad(" " * MARGIN + "name", MARGIN + self.name), "faint")]
        for column in self.others:
            is_sorted = column.key == sorted_by
            title = column.title + ("▾" if is_sorted else "")
            aligned = pad if column.key in ("state", "spark") else pad_start
            spans += ((" " * _GAP, ""), (aligned(title, column.width), "accent" if is_sorted else "faint"))
        return tuple(spans)


def columns_for(width: int, chosen: Sequence[str] = COLUMNS) -> Columns:
    """Choose columns by priority until the names would become too narrow.

    Args:
        width: cells of the tree.
        chosen: names of `ALL_COLUMNS`; the first ones take precedence. The state is always shown.
    """
    state = _STATE if width >= _ROOM_FOR_STATE else _SHORT_STATE if width >= _ROOM_FOR_SHORT_STATE else _LETTERS
    name = max(0, width - MARGIN - state.width - _GAP)
    shown = [state]
    for column in (_BY_KEY[key] for key in chosen):
        if name - column.width - _GAP < column.least_name:
            break
        shown.append(column)
        name -= column.width + _GAP
    return Columns(width, name, tuple(sorted(shown, key=lambda column: _ON_SCREEN.index(column.key))))
