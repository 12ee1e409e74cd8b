"""Sums over the parameters of a subtree, fast enough to query for every visible row of a very large model. Pure.

Each result over `selectors.subtree(module)` equals that of `selectors.totals`. Counts come from prefix sums of integers, which
are exact. Norms cannot: the difference of two prefix sums of squares loses small values. They come from blocks of adjacent
parameters, which are all joined once per row of norms; that takes half a millisecond for 100,000 parameters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from operator import mul

from gradtui.state.run_state import RunState, TreeState
from gradtui.state.selectors import joint_ratio, letters_of
from gradtui.state.series import joint_norm

_BLOCK = 256
_IS_ONE = bytes(byte == ord("1") for byte in range(256))
"""Translation table from the characters of flags to the bytes 1 and 0."""


class RangeNorms:
    """Joint norms over ranges of one row of per-parameter norms."""

    def __init__(self, norms: Sequence[float | None]) -> None:
        self._norms = norms
        self._ranges: dict[range, float | None] = {}

    def norm(self, where: range) -> float | None:
        """Return the L2 norm over a range of parameters, None if none of them has one."""
        if where not in self._ranges:
            self._ranges[where] = self._join(where.start, where.stop)
        return self._ranges[where]

    def _join(self, start: int, stop: int) -> float | None:
        first, last = -(-start // _BLOCK), stop // _BLOCK
        if first >= last:
            return joint_norm(self._norms[start:stop])
        edges = (*self._norms[start : first * _BLOCK], *self._norms[last * _BLOCK : stop])
        return joint_norm((*edges, *self._blocks[first:last]))

    @cached_property
    def _blocks(self) -> list[float | None]:
        norms = self._norms
        return [joint_norm(norms[start : start + _BLOCK]) for start in range(0, len(norms), _BLOCK)]


class TreeTotals:
    """Sums for the rows of one structure. Call `update` to apply new measurements before a query.

    Args:
        recent: how many of the newest rows of norms are kept for sparklines.
    """

    def __init__(self, tree: TreeState, recent: int) -> None:
        self._tree = tree
        self._each_count = [parameter.count for parameter in tree.parameters]
        self._counts = [0, *accumulate(self._each_count)]
        self._bytes = [0, *accumulate(parameter.bytes for parameter in tree.parameters)]
        self._trainable: list[int] = []
        self._trainable_of = ""
        self._current: RangeNorms | None = None
        self._norms_of: Sequence[float | None] | None = None
        self.norms_version = 0
        """Incremented when the norms change."""
        self._recent: deque[tuple[int, RangeNorms]] = deque(maxlen=recent)
        self._kept: list[int] = []
        self._recomputed: list[int] = []
        self._kept_of: object = None
        self._recomputed_of: object = None
        self._figures_of: object = None
        self._passing: tuple[float | None, ...] = ()
        self._ratios: dict[range, float | None] = {}

    def update(self, state: RunState) -> None:
        """Apply the newest norms, flags and saved bytes."""
        tree = state.tree
        if tree.trainable != self._trainable_of:
            self._trainable = [0, *accumulate(map(mul, self._each_count, tree.trainable.encode().translate(_IS_ONE)))]
            self._trainable_of = tree.trainable
            self._ratios = {}
        if tree.norms is not self._norms_of:
            self._norms_of = tree.norms
            self.norms_version += 1
            self._current = None if tree.norms is None else RangeNorms(tree.norms)
        kept = tree.saved.by_module if tree.saved is not None else ()
        if kept is not self._kept_of:
            self._kept_of = kept
            self._kept = [0, *accumulate(kept)] if kept else []
        again = tree.saved.recomputed if tree.saved is not None else ()
        if again is not self._recomputed_of:
            self._recomputed_of = again
            self._recomputed = [0, *accumulate(size != 0 for size in again)] if again else []
        if (tree.figures_step, len(tree.figures)) != self._figures_of:
            self._figures_of = tree.figures_step, len(tree.figures)
            self.norms_version += 1
            self._ratios = {}
        passing = tree.reach.passing if tree.reach is not None else ()
        if passing != self._passing:
            self._passing = passing
            self.norms_version += 1
        newest = self._recent[-1][0] if self._recent else -1
        history = state.history
        for step, row in zip(history.steps[-(self._recent.maxlen or 1) :], history.rows[-(self._recent.maxlen or 1) :]):
            if step > newest:
                self.norms_version += 1
                self._recent.append((step, self._current if row is tree.norms and self._current else RangeNorms(row)))

    def count(self, where: range) -> int:
        """Return the number of elements of a range of parameters."""
        return self._counts[where.stop] - self._counts[where.start]

    def bytes(self, where: range) -> int:
        """Return the bytes of a range of parameters."""
        return self._bytes[where.stop] - self._bytes[where.start]

    def trainable(self, where: range) -> int | None:
        """Return the number of elements that require a gradient; None while any parameter of the range is unknown."""
        if not self._trainable or self._tree.trainable.find("-", where.start, where.stop) >= 0:
            return None
        return self._trainable[where.stop] - self._trainable[where.start]

    def letters(self, where: range) -> str:
        """Return the state letters that occur in a range of parameters, those that need attention first."""
        return letters_of(self._tree, where)

    def kept(self, index: int) -> int | None:
        """Return the bytes that autograd saves for backward in the subtree of module `index`; None until measured."""
        if not self._kept:
            return None
        return self._kept[index + self._tree.modules[index].subtree_modules] - self._kept[index]

    def recomputed(self, index: int) -> bool:
        """Whether backward recomputes anything in the subtree of module `index`."""
        if not self._recomputed:
            return False
        return self._recomputed[index + self._tree.modules[index].subtree_modules] > self._recomputed[index]

    def norm(self, where: range) -> float | None:
        """Return the joint gradient norm of a range of parameters, None if it has none."""
        return None if self._current is None else self._current.norm(where)

    def passing(self, index: int) -> float | None:
        """Return the norm of the gradient that flows through frozen module `index`; None if it was not read."""
        return self._passing[index] if index < len(self._passing) else None

    def ratio(self, where: range) -> float | None:
        """Return the norm of the last update of the trainable parameters of a range divided by the norm of their values.

        None if it was measured for none of them, or if there are too many to go through.
        """
        if where not in self._ratios:
            self._ratios[where] = joint_ratio(self._tree, where)
        return self._ratios[where]

    def recent(self, where: range) -> list[float | None]:
        """Return the newest joint norms of a range of parameters, oldest first."""
        return [norms.norm(where) for _, norms in self._recent]
