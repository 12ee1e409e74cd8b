"""The visible rows of the model tree: all rows except those that are folded or filtered out. Pure.

A row is an integer (see `run.state.tree.rows`). The rows are those of the tree, or a list sorted by a measurement.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cached_property
from itertools import chain, compress

from gradtui.protocol.vocabulary import BufferInfo, ModuleInfo, ParameterInfo
from gradtui.run.state.tree.first_folds import first_folds, stacks_of
from gradtui.run.state.tree_state import TreeState

_FIRST_ROOM = 40
"""Default for the number of rows that a new tree may show without folding."""


Place = tuple[int, str]
"""A row: the number of its model, and its path below the root of the model."""

Folds = Mapping[int, frozenset[str]]
"""By model: its folded modules, by their paths below its root. A later structure may put a prefix before all paths."""


class TreeRows:
    """The visible rows of one structure."""

    def __init__(self, tree: TreeState, folds: Folds | None = None, room: int = _FIRST_ROOM) -> None:
        """Show a structure with the folds of an earlier one; models that it did not have, as many rows of as `room` holds."""
        self._roots = {model.root: model.number for model in tree.models} or {
            index: index for index, module in enumerate(tree.modules) if module.parent < 0
        }
        """The number of each model, by its root."""
        self._modules: Sequence[ModuleInfo] = tree.modules
        self.stacks = stacks_of(tree.modules)
        """The blocks of each module that is a stack of repeated blocks."""
        self._sequence: Sequence[int] = range(len(tree.modules))
        self._sorted: Sequence[int] | None = None
        self._parameters: Sequence[ParameterInfo] = tree.parameters
        self._tensors: Sequence[ParameterInfo | BufferInfo] = [*tree.parameters, *tree.buffers]
        self._buffers = _by_module(tree)
        """The rows of each module's buffers."""
        self._folded = first_folds(self._modules, self._own_rows(), self.stacks, room)
        if folds is not None:
            self._restore(folds)
        self._folded_in_filter: set[int] = set()
        self._marks: list[bool] | None = None
        """Whether the filter shows a row, by the number of the row: those of tensors count from the end."""
        self.filter = ""
        self.matches = 0
        """The number of rows that match the filter themselves, without their ancestors."""
        self.rows: list[int] = []
        self._rebuild()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def folds(self) -> Folds:
        """The folded modules."""
        return {
            number: frozenset(self._below(root, index) for index in self._subtree(root) if index in self._folded)
            for root, number in self._roots.items()
        }

    def is_folded(self, module: int) -> bool:
        """Whether the rows below a module are hidden."""
        return module in self._folds

    def has_children(self, module: int) -> bool:
        """Whether a module has anything below it."""
        info = self._modules[module]
        return info.own_parameters > 0 or info.subtree_modules > 1 or module in self._buffers

    @property
    def is_sorted(self) -> bool:
        """Whether the rows are a sorted list instead of the tree."""
        return self._sorted is not None

    def put_in_order(self, sequence: Sequence[int]) -> None:
        """Show the modules in another order: depth-first, with siblings in any order."""
        self._sequence = sequence
        self.__dict__.pop("_unfolded", None)
        self._rebuild()

    def sort(self, rows: Sequence[int] | None) -> None:
        """Show these rows in this order, without the modules that contain them; None shows the tree again."""
        self._sorted = rows
        self._rebuild()

    def parent(self, row: int) -> int | None:
        """Return the module row above a row in the tree, None for a root."""
        parent = self._modules[row].parent if row >= 0 else self._tensors[~row].module
        return parent if parent >= 0 else None

    def depth(self, row: int) -> int:
        """Return the depth of a row in the tree; roots have depth 0, and so has each row of a sorted list."""
        if self._sorted is not None:
            return 0
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

    def place(self, row: int) -> Place:
        """Return what stays of a row in a new structure."""
        root = row
        while (above := self.parent(root)) is not None:
            root = above
        return self._roots.get(root, 0), self._below(root, row)

    def go_to(self, place: Place) -> int:
        """Show the row of a place if the filter has it. Return its position, or that of the nearest visible row around it."""
        number, path = place
        if not self._roots:
            return 0
        root = next((root for root, other in self._roots.items() if other == number), min(self._roots))
        rows = {self._below(root, row): row for row in self._rows_of(root)}
        while path and path not in rows:
            path = path.rpartition(".")[0]
        row: int | None = rows.get(path, root)
        if row is not None and self._marks is None:
            self.reveal(row)
        while row is not None and self.position(row) is None:
            row = self.parent(row)
        return (self.position(row) if row is not None else None) or 0

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
        if self._marks is None or row < 0:
            return True
        return _hits([self._modules[row].path.lower()], self.filter.lower())[0]

    def reveal(self, row: int) -> None:
        """Unfold every ancestor of a row. Clear the filter if it hides the row, and show the tree if a sorted list does."""
        if self._sorted is not None and row not in self._sorted:
            self._sorted = None
        if self._marks is not None and not self._marks[row]:
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
            self._marks, self.matches = None, 0
        else:
            modules, tensors = (_hits(paths, text.lower()) for paths in self._lower_paths)
            self.matches = modules.count(True) + tensors.count(True)
            self._marks = self._with_ancestors(modules, tensors) + tensors[::-1]
        self._rebuild()

    @property
    def _folds(self) -> set[int]:
        return self._folded if self._marks is None else self._folded_in_filter

    def _with_ancestors(self, hits: list[bool], tensor_hits: list[bool]) -> list[bool]:
        shown, modules, last = list(hits), self._modules, -1
        for start in chain(compress(range(len(hits)), hits), compress(self._owners, tensor_hits)):
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
        rows, marks = self._sorted, self._marks
        if rows is None:
            rows = self._walk(self._folds) if self._folds else self._unfolded
        self.rows = list(rows if marks is None else compress(rows, map(marks.__getitem__, rows)))

    @cached_property
    def _lower_paths(self) -> tuple[list[str], list[str]]:
        return [module.path.lower() for module in self._modules], [tensor.path.lower() for tensor in self._tensors]

    @cached_property
    def _owners(self) -> list[int]:
        return [tensor.module for tensor in self._tensors]

    @cached_property
    def _unfolded(self) -> Sequence[int]:
        return self._walk(set())

    def _restore(self, folds: Folds) -> None:
        # Where every model is another one, they take the places of the former ones.
        if folds.keys().isdisjoint(self._roots.values()):
            folds = dict(zip(self._roots.values(), folds.values(), strict=False))
        for root, number in self._roots.items():
            if number in folds:
                self._folded.difference_update(self._subtree(root))
                self._folded.update(i for i in self._subtree(root) if self._below(root, i) in folds[number])

    def _subtree(self, root: int) -> range:
        return range(root, root + self._modules[root].subtree_modules)

    def _rows_of(self, root: int) -> Iterator[int]:
        subtree = self._subtree(root)
        yield from subtree
        yield from (~index for index, tensor in enumerate(self._tensors) if tensor.module in subtree)

    def _below(self, root: int, row: int) -> str:
        """Return the path of a row below the root of its model."""
        return self.path(row).removeprefix(self._modules[root].path).removeprefix(".")

    def _own_rows(self) -> list[int]:
        """Return the number of tensors that each module has itself."""
        return [module.own_parameters + len(self._buffers.get(i, ())) for i, module in enumerate(self._modules)]

    def _walk(self, folded: set[int]) -> Sequence[int]:
        """Return the rows that these folds do not hide."""
        rows, modules, sequence, at = array("i"), self._modules, self._sequence, 0
        while at < len(sequence):
            index = sequence[at]
            rows.append(index)
            module = modules[index]
            if index in folded:
                # A subtree is contiguous in every depth-first order.
                at += module.subtree_modules
                continue
            if module.own_parameters:
                first = module.first_parameter
                rows.extend(range(~first, ~(first + module.own_parameters), -1))
            if index in self._buffers:
                rows.extend(self._buffers[index])
            at += 1
        return rows


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
