"""The visible rows of the model tree: all rows except those that are folded or filtered out. Pure.

A row is an integer: a module's row is its index, a parameter's row is its inverted index (`~index`, so always negative).
Buffers are numbered after the parameters, and inverted too.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import cached_property
from itertools import chain, compress

from gradtui.protocol.vocabulary import BufferInfo, ModuleInfo, ParameterInfo
from gradtui.state.run_state import TreeState

_FIRST_ROOM = 40
"""Default for the number of rows that a new tree may show without folding."""


def buffer_at(tree: TreeState, row: int) -> BufferInfo | None:
    """Return the buffer of a row; None for a module or a parameter."""
    return tree.buffers[~row - len(tree.parameters)] if ~row >= len(tree.parameters) else None


def row_path(tree: TreeState, row: int) -> str:
    """Return the path of a row's module, parameter or buffer."""
    if row >= 0:
        return tree.modules[row].path
    return (buffer_at(tree, row) or tree.parameters[~row]).path


class TreeRows:
    """The visible rows of one structure. Folds are kept by module path, so that a new structure can restore them."""

    def __init__(self, tree: TreeState, folded: frozenset[str] | None = None, room: int = _FIRST_ROOM) -> None:
        self._modules: Sequence[ModuleInfo] = tree.modules
        self._parameters: Sequence[ParameterInfo] = tree.parameters
        self._tensors: Sequence[ParameterInfo | BufferInfo] = [*tree.parameters, *tree.buffers]
        self._buffers = _by_module(tree)
        """The rows of each module's buffers."""
        self._names: tuple[list[str], list[str]] | None = None
        self._folded = self._first_folds(room) if folded is None else self._folds_at(folded)
        self._folded_in_filter: set[int] = set()
        self._matched: list[bool] | None = None
        self._matched_parameters: list[bool] = []
        self.filter = ""
        self.matches = 0
        """The number of rows that match the filter themselves, without their ancestors."""
        self.rows: list[int] = []
        self._rebuild()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def folded_paths(self) -> frozenset[str]:
        """Paths of the folded modules."""
        return frozenset(self._modules[index].path for index in self._folded)

    def is_folded(self, module: int) -> bool:
        """Whether the rows below a module are hidden."""
        return module in self._folds

    def has_children(self, module: int) -> bool:
        """Whether a module has anything below it."""
        info = self._modules[module]
        return info.own_parameters > 0 or info.subtree_modules > 1 or module in self._buffers

    def parent(self, row: int) -> int | None:
        """Return the module row above a row in the tree, None for a root."""
        parent = self._modules[row].parent if row >= 0 else self._tensors[~row].module
        return parent if parent >= 0 else None

    def depth(self, row: int) -> int:
        """Return the depth of a row in the tree; roots have depth 0."""
        return self._modules[row].depth if row >= 0 else self._modules[self._tensors[~row].module].depth + 1

    def path(self, row: int) -> str:
        """Return the path of a row's module, parameter or buffer."""
        return self._modules[row].path if row >= 0 else self._tensors[~row].path

    def position(self, row: int) -> int | None:
        """Return the position of a row among the visible rows, None if it is hidden."""
        try:
            return self.rows.index(row)
        except ValueError:
            return None

    def set_folded(self, module: int, folded: bool) -> None:
        """Hide or show the rows below a module."""
        if not self.has_children(module) or folded == self.is_folded(module):
            return
        if folded:
            self._folds.add(module)
        else:
            self._folds.discard(module)
        self._rebuild()

    def fold_all(self) -> None:
        """Hide all rows below the children of the roots."""
        self._folds.update(i for i, module in enumerate(self._modules) if module.depth >= 1 and self.has_children(i))
        self._rebuild()

    def unfold_all(self) -> None:
        """Unfold every module."""
        self._folds.clear()
        self._rebuild()

    def is_match(self, row: int) -> bool:
        """Whether a row matches the filter itself, and not only one of its descendants."""
        if self._matched is None or row < 0:
            return True
        return _hits([self._modules[row].path.lower()], self.filter.lower())[0]

    def reveal(self, row: int) -> None:
        """Unfold every ancestor of a row, and clear the filter if it hides the row."""
        if self._matched is not None and not self._passes(row):
            self.set_filter("")
        parent = self.parent(row)
        while parent is not None:
            self._folds.discard(parent)
            parent = self.parent(parent)
        self._rebuild()

    def set_filter(self, text: str) -> None:
        """Show only the rows whose path contains `text`, or matches it as a glob if it has `*`, `?` or `[`; case is ignored.

        The ancestors of a match are shown too. An empty text shows all rows again, folded as before.
        """
        self.filter = text
        self._folded_in_filter = set()
        if not text:
            self._matched, self._matched_parameters, self.matches = None, [], 0
        else:
            modules, parameters = self._lower_names()
            module_hits = _hits(modules, text.lower())
            self._matched_parameters = _hits(parameters, text.lower())
            self.matches = module_hits.count(True) + self._matched_parameters.count(True)
            self._matched = self._with_ancestors(module_hits)
        self._rebuild()

    @property
    def _folds(self) -> set[int]:
        return self._folded if self._matched is None else self._folded_in_filter

    def _passes(self, row: int) -> bool:
        if self._matched is None:
            return True
        return self._matched[row] if row >= 0 else self._matched_parameters[~row]

    def _lower_names(self) -> tuple[list[str], list[str]]:
        if self._names is None:
            self._names = [m.path.lower() for m in self._modules], [t.path.lower() for t in self._tensors]
        return self._names

    def _with_ancestors(self, hits: list[bool]) -> list[bool]:
        shown, modules, last = list(hits), self._modules, -1
        for start in chain(compress(range(len(hits)), hits), compress(self._owners, self._matched_parameters)):
            # The parameters of one module are contiguous.
            if start == last:
                continue
            last, shown[start] = start, True
            module = modules[start].parent
            # A matching ancestor is shown already, and its own ancestors are handled in its own iteration.
            while module >= 0 and not shown[module]:
                shown[module] = True
                module = modules[module].parent
        return shown

    def _rebuild(self) -> None:
        matched = self._matched
        if matched is not None and not self._folded_in_filter:
            # A parameter's row is its index counted from the end.
            marks = matched + self._matched_parameters[::-1]
            self.rows = list(compress(self._unfolded, map(marks.__getitem__, self._unfolded)))
        elif matched is not None:
            self.rows = list(self._walk_matches(matched))
        else:
            self.rows = list(self._walk() if self._folded else self._unfolded)

    @cached_property
    def _owners(self) -> list[int]:
        return [tensor.module for tensor in self._tensors]

    @cached_property
    def _unfolded(self) -> Sequence[int]:
        """All rows, without folds and filter."""
        rows = array("i")
        for index, module in enumerate(self._modules):
            rows.append(index)
            if module.own_parameters:
                first = module.first_parameter
                rows.extend(range(~first, ~(first + module.own_parameters), -1))
            if index in self._buffers:
                rows.extend(self._buffers[index])
        return rows

    def _walk(self) -> Iterator[int]:
        folded, modules, index = self._folded, self._modules, 0
        while index < len(modules):
            yield index
            module = modules[index]
            if index in folded:
                index += module.subtree_modules
                continue
            first = module.first_parameter
            yield from range(~first, ~(first + module.own_parameters), -1)
            yield from self._buffers.get(index, ())
            index += 1

    def _walk_matches(self, matched: list[bool]) -> Iterator[int]:
        folded, modules, hits, index = self._folded_in_filter, self._modules, self._matched_parameters, 0
        while index < len(modules):
            module = modules[index]
            if not matched[index]:
                # Ancestors of a match are flagged, so nothing below an unflagged module can match.
                index += module.subtree_modules
                continue
            yield index
            if index in folded:
                index += module.subtree_modules
                continue
            first = module.first_parameter
            yield from (~i for i in range(first, first + module.own_parameters) if hits[i])
            yield from (row for row in self._buffers.get(index, ()) if hits[~row])
            index += 1

    def _folds_at(self, paths: frozenset[str]) -> set[int]:
        return {index for index, module in enumerate(self._modules) if module.path in paths} if paths else set()

    def _first_folds(self, room: int) -> set[int]:
        """Fold below the deepest level at which the whole tree still fits into `room` rows; the first level is always shown."""
        sizes: dict[int, int] = {}
        for index, module in enumerate(self._modules):
            sizes[module.depth] = sizes.get(module.depth, 0) + 1
            below = module.own_parameters + len(self._buffers.get(index, ()))
            sizes[module.depth + 1] = sizes.get(module.depth + 1, 0) + below
        level, rows = 1, sizes.get(0, 0) + sizes.get(1, 0)
        while level + 1 in sizes and rows + sizes[level + 1] <= room:
            level += 1
            rows += sizes[level]
        return {i for i, module in enumerate(self._modules) if module.depth >= level and self.has_children(i)}


def _by_module(tree: TreeState) -> dict[int, range]:
    rows: dict[int, range] = {}
    for row, buffer in enumerate(tree.buffers, len(tree.parameters)):
        first = rows[buffer.module].start if buffer.module in rows else ~row
        rows[buffer.module] = range(first, ~row - 1, -1)
    return rows


def _hits(names: list[str], text: str) -> list[bool]:
    if not any(character in text for character in "*?["):
        return [text in name for name in names]
    match = re.compile(translate(text)).match
    return [match(name) is not None for name in names]
