"""The text of one row of the model tree. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from gradtui.protocol.vocabulary import BufferInfo, ParameterInfo
from gradtui.state.run_state import TreeState
from gradtui.state.selectors import subtree
from gradtui.text import bytes_text, count_text, dtype_text, number_text, shape_text
from gradtui.tui.rendering import (
    LEVEL_ROLES,
    Line,
    Span,
    compact,
    elide,
    fit,
    pad,
    pad_start,
    printable,
    sparkline,
    state_letter,
    width_of,
)
from gradtui.tui.tree.finding_rows import CONCERNED, FindingRows
from gradtui.tui.tree.tree_columns import MARK_WIDTH, SPARK_WIDTH, Columns
from gradtui.tui.tree.tree_reach import TreeReach
from gradtui.tui.tree.tree_rows import TreeRows, buffer_at
from gradtui.tui.tree.tree_totals import TreeTotals

FREEZE, UNFREEZE, MIXED = "▽", "△", "◇"
TIED = "≡"
RECOMPUTED = "↻"
"""Shown before the saved bytes of a checkpointed module: backward recomputes the rest."""
FOLDED, UNFOLDED = "▸", "▾"
_INDENT, _INDENT_NARROW = 2, 1
_ROOM_TO_INDENT = 22
_MEMORY = 2_000
"""Number of rows whose lines are cached."""
_MEASURED = ("norm", "spark")
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


@dataclass(slots=True)
class _Made:
    basis: object
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
        basis = self._basis(row)
        made = self._made.get(row)
        if made is None or made.basis != basis:
            if len(self._made) > _MEMORY:
                self._made.clear()
            made = self._made[row] = _Made(basis, compact(self._spans(row)))
        if made.norms != self.totals.norms_version:
            made.norms, made.line = self.totals.norms_version, (*made.first, *self._measured_spans(row))
        return made.line

    def _basis(self, row: int) -> object:
        """Return everything in a row that can change with the same structure and columns, except measured gradients."""
        if buffer_at(self.tree, row) is not None:
            return None
        where, totals = self._parameters(row), self.totals
        pending = self.pending.mark(where.start, where.stop)
        if row < 0:
            return self.tree.states[~row], pending, self._rail(row), self.findings.levels.get(row)
        return (
            totals.letters(where), pending, totals.kept(row), self._mark(row), totals.trainable(where),
            self.rows.is_folded(row), self._rail(row), self.findings.levels.get(row),
            self.findings.levels_below.get(row),
        )  # fmt: skip

    def _spans(self, row: int) -> list[Span]:
        spans: list[Span] = [*self.state_cell(row), (self._rail(row), "gradients"), *self._name_cell(row)]
        where = self._parameters(row)
        for column in self._before:
            spans.append((" ", ""))
            if column.key == "kept" and row >= 0:
                spans += (self._mark(row), *self._cell(column.key, column.width - MARK_WIDTH, row, where))
            else:
                spans += self._cell(column.key, column.width, row, where)
        return spans

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

    def _rail(self, row: int) -> str:
        return self.reach.mark(row, folded=row >= 0 and self.rows.is_folded(row))

    def marker_column(self, row: int) -> int:
        """Return the column of a module row's fold marker, in cells."""
        return self.columns.state + 1 + self._indent * self.rows.depth(row)

    def state_cell(self, row: int) -> Line:
        """Return the state letters, preceded by a symbol for a pending freeze or unfreeze, or for an open finding."""
        width = self.columns.state
        if buffer_at(self.tree, row) is not None:
            return fit((), width)
        where = self._parameters(row)
        letters = self.totals.letters(where)
        pending = self.pending.mark(where.start, where.stop)
        spans: list[Span] = [(pending, "pending") if pending else self._concerned(row)]
        room = width - 1
        shown = letters if len(letters) <= room else letters[: room - 1]
        spans += map(state_letter, shown)
        if len(shown) < len(letters):
            spans.append(("…", "faint"))
        return fit(spans, width)

    def _concerned(self, row: int) -> Span:
        """Return the mark of a row that an open finding concerns. A folded module has it for the rows that it hides."""
        level = self.findings.levels.get(row)
        if level is None and row >= 0 and self.rows.is_folded(row):
            level = self.findings.levels_below.get(row)
        return (CONCERNED, LEVEL_ROLES[level]) if level is not None else (" ", "")

    def _parameters(self, row: int) -> range:
        if row >= 0:
            return subtree(self.tree.modules[row])
        return range(~row, min(~row + 1, len(self.tree.parameters)))

    def _name_cell(self, row: int) -> Line:
        width = self.columns.name
        indent = " " * min(self._indent * self.rows.depth(row), max(0, width - 8))
        if row >= 0:
            return fit(self._module_name(row, indent, width), width)
        buffer = buffer_at(self.tree, row)
        if buffer is not None:
            name, word = printable(buffer.path.rpartition(".")[2]), " buffer"
            shown = elide(name, max(1, width - len(indent) - len(word)))
            return fit([(indent, ""), (shown, "text"), (word, "buffers")], width)
        info = self.tree.parameters[~row]
        name = printable(info.path.rpartition(".")[2])
        tied = 3 if len(info.names) > 1 else 0
        spans: list[Span] = [(indent, ""), (elide(name, max(1, width - len(indent) - tied)), "text")]
        if len(info.names) > 1:
            spans.append((f" {TIED}{len(info.names)}", "accent"))
        return fit(spans, width)

    def _module_name(self, row: int, indent: str, width: int) -> list[Span]:
        module = self.tree.modules[row]
        marker = " " if not self.rows.has_children(row) else FOLDED if self.rows.is_folded(row) else UNFOLDED
        name = printable(module.name) or printable(module.type_name)
        spans: list[Span] = [(indent, ""), (marker + " ", "muted"), (name, "strong")]
        room = width - len(indent) - 2 - width_of(name) - 1
        kind = printable(module.type_name)
        if kind != name and room >= min(6, width_of(kind)):
            spans.append((" " + elide(kind, room), "faint"))
        return spans

    def _cell(self, key: str, width: int, row: int, where: range) -> Line:
        if key == "spark":
            return sparkline(self.totals.recent(where), SPARK_WIDTH)
        if key == "norm" and where:
            return _norm_cell(self.totals.norm(where), width, "muted" if row >= 0 else "text")
        if row < 0:
            tensor = buffer_at(self.tree, row) or self.tree.parameters[~row]
            return ((pad_start(_tensor_text(key, tensor), width), "text"),)
        text, role = "", "muted"
        if key == "kept":
            kept = self.totals.kept(row)
            text, role = bytes_text(kept), "activations" if kept else "faint"
        elif where and key == "count":
            text = count_text(self.totals.count(where))
        elif where and key == "trainable":
            text = count_text(self.totals.trainable(where))
        elif where and key == "bytes":
            text = bytes_text(self.totals.bytes(where))
        return ((pad_start(text, width), role),)


def _tensor_text(key: str, info: ParameterInfo | BufferInfo) -> str:
    if key == "count":
        return count_text(info.count)
    if key == "bytes":
        return bytes_text(info.bytes)
    if key == "shape":
        return shape_text(info.shape)
    return dtype_text(info.dtype) if key == "dtype" else ""


def _norm_cell(norm: float | None, width: int, role: str) -> Line:
    text = number_text(norm)
    if norm is None:
        role = "faint"
    elif text.strip() in ("NaN", "Inf", "-Inf"):
        role = "error"
    return ((pad(text, width), role),)
