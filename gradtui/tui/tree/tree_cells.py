"""The text of one row of the model tree. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.freezes import RowsInForce
from gradtui.protocol.vocabulary import BufferInfo, ParameterInfo, ParameterState
from gradtui.run.state.norms.usual_ratio import is_far_from_usual
from gradtui.run.state.selectors import subtree
from gradtui.run.state.tree.rows import buffer_at
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import (
    DASH,
    bytes_text,
    count_text,
    dtype_text,
    microseconds_text,
    number_text,
    rates_text,
    rows_words,
    shape_text,
)
from gradtui.run.text.rank_norms import range_text
from gradtui.tui.rendering import (
    LEVEL_ROLES,
    STALE,
    Line,
    Span,
    compact,
    elide,
    elide_start,
    fit,
    pad_start,
    printable,
    sparkline,
    width_of,
)
from gradtui.tui.tree.finding_rows import CONCERNED, FindingRows
from gradtui.tui.tree.rank_totals import RankTotals
from gradtui.tui.tree.state_cell import FREEZE, MIXED, TRAINING, UNFREEZE, state_cell
from gradtui.tui.tree.tree_columns import MARGIN, MARK_WIDTH, SPARK_WIDTH, Columns
from gradtui.tui.tree.tree_reach import NEVER, TreeReach
from gradtui.tui.tree.tree_rows import TreeRows
from gradtui.tui.tree.tree_totals import TreeTotals

TIED = "≡"
RECOMPUTED = "↻"
"""Shown before the saved bytes of a checkpointed module: backward recomputes the rest."""
PASSING = "→"
"""Shown before the norm of a gradient that only flows through a module: nothing stores it."""
AT_LEAST = "≥"
"""Shown before a norm that is only of the part that this process has of sharded parameters."""
DIFFERS = "≠"
"""Shown before a norm that is another one on other ranks."""
FOLDED, UNFOLDED = "▸", "▾"
_INDENT, _INDENT_NARROW = 2, 1
_ROOM_TO_INDENT = 22
_MIN_CELLS = 3
"""The strip of a folded stack needs this many cells."""
_MEMORY = 2_000
"""Number of rows whose lines are cached."""
_MEASURED = ("norm", "ranks", "ratio", "lr", "spark")
"""The last columns. They change with every measurement of norms, the columns before them rarely."""


class PendingMarks:
    """Symbols for any range of parameters, from the parameters with a pending freeze (False) or unfreeze (True)."""

    def __init__(self, wishes: Mapping[int, bool]) -> None:
        self._freezing = sorted(index for index, wish in wishes.items() if not wish)
        self._unfreezing = sorted(index for index, wish in wishes.items() if wish)

    def mark(self, first: int, last: int) -> str:
        """Return the symbol of the parameters `first:last`, empty if none of them is pending."""
        freezing, unfreezing = _any_in(self._freezing, first, last), _any_in(self._unfreezing, first, last)
        if freezing and unfreezing:
            return MIXED
        return FREEZE if freezing else UNFREEZE if unfreezing else ""


NOTHING_PENDING = PendingMarks({})


def _any_in(indices: list[int], first: int, last: int) -> bool:
    at = bisect_left(indices, first)
    return at < len(indices) and indices[at] < last


_Facts = tuple[Any, ...]
"""The line of the gradient, the states, the pending change, the level of a finding and the mark of saved bytes; then more."""


@dataclass(slots=True)
class _Made:
    facts: _Facts
    first: Line
    """The line without the gradient columns."""
    norms: int = -1
    """The `norms_version` of the line."""
    line: Line = ()


class TreeCells:
    """Makes the lines of rows for one set of columns. A row is rebuilt only if something in it changed."""

    def __init__(
        self,
        tree: TreeState,
        rows: TreeRows,
        totals: TreeTotals,
        columns: Columns,
        reach: TreeReach | None = None,
        findings: FindingRows | None = None,
    ) -> None:
        self.tree, self.rows, self.totals, self.columns = tree, rows, totals, columns
        self.reach = reach or TreeReach(tree)
        self.findings = findings or FindingRows(tree)
        self.pending = NOTHING_PENDING
        self.asked: frozenset[str] = frozenset()
        """Paths of the modules with a pending checkpointing command."""
        self._indent = _INDENT if columns.name >= _ROOM_TO_INDENT else _INDENT_NARROW
        self._before = tuple(column for column in columns.others if column.key not in _MEASURED)
        self._measured = tuple(column for column in columns.others if column.key in _MEASURED)
        self._made: dict[int, _Made] = {}

    def line(self, row: int) -> Line:
        """Return the row as a line of exactly `columns.width` cells."""
        facts = self._facts(row)
        made = self._made.get(row)
        if made is None or made.facts != facts:
            if len(self._made) > _MEMORY:
                self._made.clear()
            made = self._made[row] = _Made(facts, compact(self._spans(row, facts)))
        if made.norms != self.totals.norms_version:
            made.norms, made.line = self.totals.norms_version, (*made.first, *self._measured_spans(row))
        return made.line

    def _is_norm_old(self, row: int, where: range) -> bool:
        """Return whether the norm in a row is old: of its gradients or, without one, of the gradient that flows through."""
        if row >= 0 and self.totals.norm(where) is None and self.totals.passing(row) is not None:
            return self.totals.is_passing_old(row)
        return self.totals.ages.is_norm_old(where)

    def _facts(self, row: int) -> _Facts:
        """Return everything in a row that can change with the same structure and columns, except measured gradients."""
        where, totals, is_sorted = self._parameters(row), self.totals, self.rows.is_sorted
        if not where and row < 0:
            return " ", "", "", None, " ", is_sorted
        letters, pending = totals.letters(where), self.pending.mark(where.start, where.stop)
        rail = self.reach.mark(row, trains=not TRAINING.isdisjoint(letters))
        if row < 0:
            return (
                rail, letters, pending, self.findings.levels.get(row), " ", is_sorted, self._broken(letters, where),
                self.tree.frozen_rows.get(~row),
            )  # fmt: skip
        level, is_folded = self.findings.levels.get(row), self.rows.is_folded(row)
        if is_folded and level is None:
            # A folded module has the mark for the rows that it hides.
            level = self.findings.levels_below.get(row)
        strip = totals.norms_version if is_folded and row in self.rows.stacks else None
        return (
            rail, letters, pending, level, self._mark(row), is_sorted, totals.kept(row), totals.trainable(where), is_folded,
            strip, self._broken(letters, where), totals.time(row, own=is_sorted), totals.is_time_old,
        )  # fmt: skip

    def _broken(self, letters: str, where: range) -> str:
        """Return whether the gradients are NaN or Inf, where one of them is not finite and their norm says which."""
        norm = self.totals.norm(where) if ParameterState.NOT_FINITE.value in letters else None
        return "" if norm is None or math.isfinite(norm) else number_text(norm).strip()

    def _spans(self, row: int, facts: _Facts) -> list[Span]:
        rail, letters, pending, level, saved_mark, *_ = facts
        where = self._parameters(row)
        first = (pending, "pending") if pending else (CONCERNED, LEVEL_ROLES[level]) if level is not None else (" ", "")
        spans: list[Span] = [first, (f"{rail} ", "faint" if rail == NEVER else "gradients"), *self._name_cell(row)]
        for column in self._before:
            spans.append((" ", ""))
            if column.key == "saved" and row >= 0:
                spans += (saved_mark, *self._cell(column.key, column.width - MARK_WIDTH, row, where))
            elif column.key == "state":
                is_divided = (
                    len(letters) > 1 or letters == ParameterState.UNKNOWN.value or ~row in self.tree.frozen_rows
                )
                share = self._share(where) if is_divided else None
                spans += state_cell(letters, share, pending, column.width, self._broken(letters, where))
            else:
                spans += self._cell(column.key, column.width, row, where)
        return spans

    def _share(self, where: range) -> float | None:
        trainable, elements = self.totals.trainable(where), self.totals.count(where)
        return None if trainable is None or not elements else trainable / elements

    def _measured_spans(self, row: int) -> list[Span]:
        spans: list[Span] = []
        where = self._parameters(row)
        for column in self._measured:
            spans += ((" ", ""), *self._cell(column.key, column.width, row, where))
        return spans

    def _mark(self, row: int) -> Span:
        """Return the symbol before the saved bytes of a module: checkpointed, or with a pending change of checkpointing."""
        if self.asked and self.tree.modules[row].path in self.asked:
            return RECOMPUTED, "pending"
        again = self.totals.recomputed(row) or row in self.tree.checkpointed
        return (RECOMPUTED, "activations") if again else (" ", "")

    def marker_column(self, row: int) -> int:
        """Return the column of a module row's fold marker, in cells."""
        return MARGIN + self._indent * self.rows.depth(row)

    def _parameters(self, row: int) -> range:
        if row >= 0:
            return subtree(self.tree.modules[row])
        count = len(self.tree.parameters)
        return range(min(~row, count), min(~row + 1, count))

    def _name_cell(self, row: int) -> Line:
        width = self.columns.name
        indent = " " * min(self._indent * self.rows.depth(row), max(0, width - 8))
        if row >= 0:
            return fit(self._module_name(row, indent, width), width)
        buffer = buffer_at(self.tree, row)
        if buffer is not None:
            name, word = self._name(buffer.path, width), " buffer"
            shown = elide(name, max(1, width - len(indent) - len(word)))
            return fit([(indent, ""), (shown, "text"), (word, "buffers")], width)
        info = self.tree.parameters[~row]
        name = self._name(info.path, width)
        tied = 3 if len(info.names) > 1 else 0
        spans: list[Span] = [(indent, ""), (elide(name, max(1, width - len(indent) - tied)), "text")]
        if len(info.names) > 1:
            spans.append((f" {TIED}{len(info.names)}", "accent"))
        rows = self.tree.frozen_rows.get(~row)
        if rows is not None:
            spans.append((_rows_words(rows, width - sum(width_of(text) for text, _ in spans)), "accent"))
        return fit(spans, width)

    def _name(self, path: str, width: int) -> str:
        """Return the last name of a path; in a sorted list the path, whose end says more."""
        return elide_start(printable(path), width) if self.rows.is_sorted else printable(path.rpartition(".")[2])

    def _module_name(self, row: int, indent: str, width: int) -> list[Span]:
        module = self.tree.modules[row]
        if self.rows.is_sorted:
            return [(elide_start(printable(module.path or module.type_name), width), "strong")]
        marker = " " if not self.rows.has_children(row) else FOLDED if self.rows.is_folded(row) else UNFOLDED
        name = printable(module.name) or printable(module.type_name)
        spans: list[Span] = [(indent, ""), (marker + " ", "muted"), (name, "strong")]
        room = width - len(indent) - 2 - width_of(name) - 1
        kind = printable(module.type_name)
        if row in self.rows.stacks and self.rows.is_folded(row):
            times = f" ×{len(self.rows.stacks[row])}"
            return [*spans, (times, "muted"), *self._strip(row, room - width_of(times))]
        if kind != name and room >= min(6, width_of(kind)):
            spans.append((" " + elide(kind, room), "faint"))
        return spans

    def _strip(self, row: int, room: int) -> Line:
        """Return one cell per block of a folded stack: its gradient norm.

        Where no block has one, the norm of the gradient that flows through it, or else its saved bytes.
        """
        blocks = self.rows.stacks[row]
        cells = min(room, len(blocks))
        if cells < _MIN_CELLS:
            return ()
        values: list[float | None] = [self.totals.norm(subtree(self.tree.modules[block])) for block in blocks]
        is_old = self._is_norm_old(row, self._parameters(row))
        role = STALE if is_old else "spark"
        if not any(value is not None for value in values):
            values, role = [self.totals.passing(block) for block in blocks], STALE if is_old else "muted"
        if not any(value is not None for value in values):
            values, role = [self.totals.kept(block) for block in blocks], "activations"
        groups = [values[i * len(values) // cells : (i + 1) * len(values) // cells] for i in range(cells)]
        highest = [max((value for value in group if value is not None), default=None) for group in groups]
        return ((" ", ""), *sparkline(highest, cells, role))

    def _cell(self, key: str, width: int, row: int, where: range) -> Line:
        if key == "spark":
            return sparkline(self.totals.recent(where), SPARK_WIDTH)
        if key == "norm" and where:
            return self._norm_cell(width, row, where)
        if key == "ranks" and where:
            return _ranks_cell(self.totals.ranks, where, width)
        if key == "ratio" and where:
            is_old = self.totals.ages.old and self.totals.is_ratio_old(where)
            ratio = self.totals.ratio(where)
            far = "warning" if is_far_from_usual(self.tree, where, ratio) else ""
            role = far or (STALE if is_old else "muted" if row >= 0 else "text")
            return _number_cell(ratio, width, role)
        if key == "lr" and where:
            text = rates_text(self.totals.rates(where), width)
            return ((pad_start(text, width), "faint" if text == DASH else "muted" if row >= 0 else "text"),)
        if row < 0:
            tensor = buffer_at(self.tree, row) or self.tree.parameters[~row]
            return ((pad_start(_tensor_text(key, tensor), width), "text"),)
        if key == "saved":
            kept = self.totals.kept(row)
            return ((pad_start(bytes_text(kept), width), "activations" if kept else "faint"),)
        if key == "time":
            seconds = self.totals.time(row, own=self.rows.is_sorted)
            text = microseconds_text(seconds * 1e6) if seconds else ""
            return ((pad_start(text, width), STALE if self.totals.is_time_old else "text"),)
        return ((pad_start(self._sum_text(key, where), width), "muted"),)

    def _sum_text(self, key: str, where: range) -> str:
        """Return a sum over the parameters of a module."""
        if where and key == "count":
            return count_text(self.totals.count(where))
        if where and key == "trainable":
            return count_text(self.totals.trainable(where))
        return bytes_text(self.totals.bytes(where)) if where and key == "bytes" else ""

    def _norm_cell(self, width: int, row: int, where: range) -> Line:
        norm, is_old = self.totals.norm(where), self.totals.ages.old and self._is_norm_old(row, where)
        role = STALE if is_old else "muted" if row >= 0 else "text"
        passing = self.totals.passing(row) if row >= 0 and norm is None else None
        if passing is not None:
            return _passing_cell(passing, width, STALE if is_old else "muted")
        if norm is not None and self.totals.is_part(where):
            return _marked_cell(AT_LEAST, norm, width, role, role)
        if self.totals.ranks.differs(where):
            return _marked_cell(DIFFERS, norm, width, role, "warning")
        return _number_cell(norm, width, role)


def _rows_words(rows: RowsInForce, room: int) -> str:
    """Return how many rows of a parameter train, as long as there is room for it; empty without any."""
    trained, count = rows.count - rows.frozen, rows.count
    words = (rows_words(rows), f"{trained:,} of {count:,} rows", f"{trained:,}/{count:,}", "rows")
    return next((f" {each}" for each in words if len(each) < room), "")


def _tensor_text(key: str, info: ParameterInfo | BufferInfo) -> str:
    if key == "count":
        return count_text(info.count)
    if key == "bytes":
        return bytes_text(info.bytes)
    if key == "shape":
        return shape_text(info.shape)
    return dtype_text(info.dtype) if key == "dtype" else ""


def _passing_cell(value: float, width: int, role: str) -> Line:
    text = number_text(value).strip()
    if len(PASSING + text) > width:
        text = f"{value:.0e}"
    return ((pad_start(PASSING + text, width), role if math.isfinite(value) else "error"),)


def _marked_cell(mark: str, value: float | None, width: int, role: str, mark_role: str) -> Line:
    text = number_text(value).strip()
    if value is not None and len(mark + text) > width:
        text = f"{value:.0e}"
    role = "faint" if value is None else role if math.isfinite(value) else "error"
    return ((pad_start(mark, width - len(text)), mark_role), (text, role))


def _ranks_cell(ranks: RankTotals, where: range, width: int) -> Line:
    """Return the lowest and the highest norm, and the rank that is furthest from the others; of shards, how many there are."""
    found = ranks.spread(where)
    if found is not None:
        return ((pad_start(range_text(found, width), width), "warning"),)
    parts = ranks.parts(where)
    return ((pad_start(f"{parts} parts" if parts else "", width), "faint"),)


def _number_cell(value: float | None, width: int, role: str) -> Line:
    text = number_text(value)
    if value is None:
        role = "faint"
    elif text.strip() in ("NaN", "Inf", "-Inf"):
        role = "error"
    return ((pad_start(text, width), role),)
