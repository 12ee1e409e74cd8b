"""The text of one row of the model tree. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.vocabulary import BufferInfo, ParameterInfo
from gradtui.state.run_state import TreeState
from gradtui.tui.rendering import (
    Line,
    Span,
    bytes_text,
    compact,
    count_text,
    dtype_text,
    elide,
    fit,
    norm_text,
    pad,
    pad_start,
    printable,
    shape_text,
    sparkline,
    state_letter,
    width_of,
)
from gradtui.tui.tree.pending_marks import NOTHING_PENDING
from gradtui.tui.tree.tree_columns import MARK_WIDTH, SPARK_WIDTH, Columns
from gradtui.tui.tree.tree_reach import TreeReach
from gradtui.tui.tree.tree_rows import TreeRows, buffer_at
from gradtui.tui.tree.tree_totals import TreeTotals

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


@dataclass(slots=True)
class _Made:
    """The cached line of a row."""

    basis: object
    first: Line
    """The line without the gradient columns."""
    norms: int = -1
    """The `norms_version` of the line."""
    line: Line = ()


class TreeCells:
    """Makes the lines of rows for one set of columns. A row is rebuilt only if something in it changed."""

    def __init__(
        self, tree: TreeState, rows: TreeRows, totals: TreeTotals, columns: Columns, reach: TreeReach | None = None
    ) -> None:
        self.tree, self.rows, self.totals, self.columns = tree, rows, totals, columns
        self.reach = reach or TreeReach(tree)
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
        if row < 0:
            return self.tree.states[~row], self._pending_mark(row), self._rail(row)
        module, totals = self.tree.modules[row], self.totals
        return (
            totals.letters(module), self._pending_mark(row), totals.kept(row), self._mark(row), totals.trainable(module),
            self.rows.is_folded(row), self._rail(row),
        )  # fmt: skip

    def _spans(self, row: int) -> list[Span]:
        spans: list[Span] = [*self.state_cell(row), (self._rail(row), "gradients"), *self._name_cell(row)]
        for column in self._before:
            spans.append((" ", ""))
            if column.key == "kept" and row >= 0:
                spans += (self._mark(row), *self._cell(column.key, column.width - MARK_WIDTH, row))
            else:
                spans += self._cell(column.key, column.width, row)
        return spans

    def _measured_spans(self, row: int) -> list[Span]:
        spans: list[Span] = []
        for column in self._measured:
            spans += ((" ", ""), *self._cell(column.key, column.width, row))
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
        """Return the state letters, preceded by a symbol while a freeze or unfreeze is pending."""
        width = self.columns.state
        if buffer_at(self.tree, row) is not None:
            return fit((), width)
        pending = self._pending_mark(row)
        letters = self.totals.letters(self.tree.modules[row]) if row >= 0 else self.tree.states[~row]
        spans: list[Span] = [(pending or " ", "pending")]
        room = width - 1
        shown = letters if len(letters) <= room else letters[: room - 1]
        spans += map(state_letter, shown)
        if len(shown) < len(letters):
            spans.append(("…", "faint"))
        return fit(spans, width)

    def _pending_mark(self, row: int) -> str:
        if row < 0:
            return self.pending.mark(~row, ~row + 1)
        module = self.tree.modules[row]
        return self.pending.mark(module.first_parameter, module.first_parameter + module.subtree_parameters)

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

    def _cell(self, key: str, width: int, row: int) -> Line:
        return self._module_cell(key, width, row) if row >= 0 else self._parameter_cell(key, width, ~row)

    def _module_cell(self, key: str, width: int, index: int) -> Line:
        module = self.tree.modules[index]
        if key == "spark":
            recent = self.totals.recent_of_module(module) if self._norms_shown(module.subtree_parameters) else []
            return sparkline(recent, SPARK_WIDTH)
        text, role = "", "muted"
        if key == "kept":
            kept = self.totals.kept(index)
            text, role = bytes_text(kept), "activations" if kept else "faint"
        elif module.subtree_parameters == 0:
            pass
        elif key == "count":
            text = count_text(self.totals.count(module))
        elif key == "trainable":
            text = count_text(self.totals.trainable(module))
        elif key == "bytes":
            text = bytes_text(self.totals.bytes(module))
        elif key == "norm":
            return _norm_cell(self.totals.norm(module), width, "muted")
        return ((pad_start(text, width), role),)

    def _parameter_cell(self, key: str, width: int, index: int) -> Line:
        buffer = buffer_at(self.tree, ~index)
        if buffer is not None:
            return ((pad_start(_tensor_text(key, buffer), width), "text"),)
        info = self.tree.parameters[index]
        if key == "norm":
            return _norm_cell(self.tree.norms[index] if self.tree.norms is not None else None, width, "text")
        if key == "spark":
            return sparkline(self.totals.recent_of_parameter(index), SPARK_WIDTH)
        return ((pad_start(_tensor_text(key, info), width), "text"),)

    def _norms_shown(self, parameters: int) -> bool:
        return parameters > 0 and self.tree.norms is not None


def _tensor_text(key: str, info: ParameterInfo | BufferInfo) -> str:
    if key == "count":
        return count_text(info.count)
    if key == "bytes":
        return bytes_text(info.bytes)
    if key == "shape":
        return shape_text(info.shape)
    return dtype_text(info.dtype) if key == "dtype" else ""


def _norm_cell(norm: float | None, width: int, role: str) -> Line:
    text = norm_text(norm)
    if norm is None:
        role = "faint"
    elif text.strip() in ("NaN", "Inf", "-Inf"):
        role = "error"
    return ((pad(text, width), role),)
