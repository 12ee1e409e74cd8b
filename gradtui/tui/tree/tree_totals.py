"""Sums over the parameters of a subtree, fast enough to query for every visible row of a very large model. Pure.

Each result over `selectors.subtree(module)` equals that of `selectors.totals`. Counts come from prefix sums of integers, which
are exact. Norms cannot: the difference of two prefix sums of squares loses small values. They come from blocks of adjacent
parameters. A block is joined once per row of norms, and only if a row that is asked for contains it; all of them take half a
millisecond for 100,000 parameters. What changes with every sampled step is summed in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, compress, repeat
from operator import ne

from gradtui.run.state.freshness import oldest_fresh_step, ratio_steps
from gradtui.run.state.norms.shown_norms import ShownNorms, shown_norms
from gradtui.run.state.optimizers.param_groups import Key, groups_by_parameter, rate_of
from gradtui.run.state.ranks.rank_norms import is_shard
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import joint_ratio, letters_of, measured_step
from gradtui.run.state.series import RowHistory
from gradtui.run.state.time.module_times import are_times_old, module_time
from gradtui.run.state.tree_state import TreeState
from gradtui.tui.tree.range_norms import RangeNorms
from gradtui.tui.tree.rank_totals import RankTotals
from gradtui.tui.tree.row_ages import RowAges

_BLOCK = 256
_IS_ONE = bytes(byte == ord("1") for byte in range(256))
"""Translation table from the characters of flags to the bytes 1 and 0."""


class RangeSums:
    """Sums over ranges of one row of integers."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes

    def sum(self, start: int, stop: int) -> int:
        """Return the sum of `sizes[start:stop]`."""
        first, last = -(-start // _BLOCK), stop // _BLOCK
        if first >= last:
            return sum(self._sizes[start:stop])
        edges = sum(self._sizes[start : first * _BLOCK]) + sum(self._sizes[last * _BLOCK : stop])
        return edges + self._blocks[last] - self._blocks[first]

    @cached_property
    def _blocks(self) -> list[int]:
        """The sums of the first blocks, beginning with none."""
        sizes = self._sizes
        starts = range(0, len(sizes), _BLOCK)
        return [*accumulate((sum(sizes[start : start + _BLOCK]) for start in starts), initial=0)]


class ChosenSums:
    """Sums over ranges of integers of which some are chosen. A new choice costs what it changes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._chosen = b""
        self._sums = [0] * -(-len(sizes) // _BLOCK)
        self._before: list[int] = []
        """The sums of the first blocks, beginning with none."""

    def choose(self, chosen: bytes) -> None:
        """Choose the integers at the places of ones."""
        old, self._chosen = self._chosen, chosen
        for number, start in enumerate(range(0, len(self._sizes), _BLOCK)):
            stop = start + _BLOCK
            if chosen[start:stop] != old[start:stop]:
                self._sums[number] = self._chosen_in(start, stop)
        self._before = [*accumulate(self._sums, initial=0)]

    def sum(self, start: int, stop: int) -> int:
        """Return the sum of the chosen ones of `sizes[start:stop]`."""
        first, last = -(-start // _BLOCK), stop // _BLOCK
        if first >= last:
            return self._chosen_in(start, stop)
        edges = self._chosen_in(start, first * _BLOCK) + self._chosen_in(last * _BLOCK, stop)
        return edges + self._before[last] - self._before[first]

    def _chosen_in(self, start: int, stop: int) -> int:
        return sum(compress(self._sizes[start:stop], self._chosen[start:stop]))


class TreeTotals:
    """Sums for the rows of one structure. Call `update` to apply new measurements before a query.

    Args:
        recent: how many of the newest rows of norms are kept for sparklines.
    """

    def __init__(self, tree: TreeState, recent: int) -> None:
        self._tree = tree
        counts = [parameter.count for parameter in tree.parameters]
        self._counts = [0, *accumulate(counts)]
        self._bytes = [0, *accumulate(parameter.bytes for parameter in tree.parameters)]
        self._trainable = ChosenSums(counts)
        self._trainable_of = ""
        self._current: RangeNorms | None = None
        self.row: Sequence[float | None] | None = None
        """The norms of all parameters."""
        self._is_part = False
        self._shards = bytes(map(is_shard, tree.parameters))
        self.ranks = RankTotals()
        """Which norms differ between the ranks of a job."""
        self._history: RowHistory | None = None
        self.norms_version = 0
        """Incremented when the norms change."""
        self._recent: deque[tuple[int, RangeNorms]] = deque(maxlen=recent)
        self._kept: RangeSums | None = None
        self._recomputed = b""
        """By module: whether backward recomputes something in it."""
        self._kept_of: object = None
        self._recomputed_of: object = None
        self._figures_of: object = None
        self._passing: tuple[float | None, ...] = ()
        self.is_time_old = False
        """Whether the times are from before the newest change."""
        self._ratios: dict[range, float | None] = {}
        self._ratio_steps: dict[range, tuple[int, int] | None] = {}
        self._groups_of: object = ()
        """The optimizers whose groups are known."""
        self._groups: Mapping[int, tuple[Key, ...]] = {}
        self._keys: frozenset[Key] = frozenset()
        self._groups_in: dict[range, frozenset[Key]] = {}
        self._rates_of: object = None
        self._rates: dict[Key, float | None] = {}
        self._figure_steps: frozenset[int] = frozenset()
        self._ages_of: tuple[object, ...] = (None, None, None, ())
        self.ages = RowAges(0)
        """Which norms, and values of which steps, are old."""

    def update(self, state: RunState) -> None:
        """Apply the newest norms, flags and saved bytes."""
        tree = state.tree
        if tree.trainable != self._trainable_of:
            self._trainable.choose(tree.trainable.encode().translate(_IS_ONE))
            self._trainable_of = tree.trainable
            self._ratios, self._ratio_steps = {}, {}
        self._take_rates(state)
        shown = shown_norms(state)
        self._take_norms(state, shown)
        kept = tree.saved.by_module if tree.saved is not None else ()
        if kept is not self._kept_of:
            self._kept_of = kept
            self._kept = RangeSums(kept) if kept else None
        again = tree.saved.recomputed if tree.saved is not None else ()
        if again is not self._recomputed_of:
            self._recomputed_of = again
            self._recomputed = bytes(map(ne, again, repeat(0)))
        if (tree.gradient_figures_step, len(tree.gradient_figures)) != self._figures_of:
            self._figures_of = tree.gradient_figures_step, len(tree.gradient_figures)
            self._figure_steps = frozenset(step for step, _ in tree.gradient_figures.values())
            self.norms_version += 1
            self._ratios, self._ratio_steps = {}, {}
        passing = tree.gradient_flow.passing if tree.gradient_flow is not None else ()
        if passing is not self._passing and passing != self._passing:
            self._passing = passing
            self.norms_version += 1
        self.is_time_old = are_times_old(state)
        self._take_recent(shown)
        # Norms of the whole are all of one step.
        steps = tree.norm_steps if shown.norms is tree.norms else None
        of, oldest, before = (shown.step, steps, self._figures_of, tree.steps), oldest_fresh_step(state), self.ages.old
        if of[0] != self._ages_of[0] or of[1] is not self._ages_of[1] or of[2:] != self._ages_of[2:]:
            self._ages_of = of
            self.ages = RowAges(oldest, shown.step, steps, (*self._figure_steps, *tree.steps))
            self.norms_version += before != self.ages.old
        else:
            self.norms_version += self.ages.grow(oldest)

    def _take_rates(self, state: RunState) -> None:
        if state.optimizers is not self._groups_of:
            self._groups_of, self._groups, self._groups_in = state.optimizers, groups_by_parameter(state), {}
            self._keys = frozenset(key for keys in self._groups.values() for key in keys)
        elif state.groups is self._rates_of:
            return
        self._rates_of = state.groups
        self._rates = {key: rate_of(state, key) for key in self._keys}
        self.norms_version += 1

    def _take_norms(self, state: RunState, shown: ShownNorms) -> None:
        if shown.norms is not self.row or shown.is_part != self._is_part:
            self.row, self._is_part = shown.norms, shown.is_part
            self.norms_version += 1
            self._current = None if shown.norms is None else RangeNorms(shown.norms)
        if self.ranks.update(state.job):
            self.norms_version += 1

    def _take_recent(self, shown: ShownNorms) -> None:
        history = shown.history
        if history is not self._history:
            # Norms of parts and of the whole are not compared.
            self._history = history
            self._recent.clear()
        newest = self._recent[-1][0] if self._recent else -1
        for step, row in zip(history.steps[-(self._recent.maxlen or 1) :], history.rows[-(self._recent.maxlen or 1) :]):
            if step > newest:
                self.norms_version += 1
                self._recent.append((step, self._current if row is shown.norms and self._current else RangeNorms(row)))

    def count(self, where: range) -> int:
        """Return the number of elements of a range of parameters."""
        return self._counts[where.stop] - self._counts[where.start]

    def bytes(self, where: range) -> int:
        """Return the bytes of a range of parameters."""
        return self._bytes[where.stop] - self._bytes[where.start]

    def trainable(self, where: range) -> int | None:
        """Return the number of elements that train: those that require a gradient, and whose row no command has frozen.

        None while any parameter of the range is unknown.
        """
        if not self._trainable_of or self._tree.trainable.find("-", where.start, where.stop) >= 0:
            return None
        tree = self._tree
        frozen = sum(
            tree.parameters[index].count // rows.count * rows.frozen
            for index, rows in tree.frozen_rows.items()
            if index in where and tree.trainable[index] == "1"
        )
        return self._trainable.sum(where.start, where.stop) - frozen

    def letters(self, where: range) -> str:
        """Return the state letters that occur in a range of parameters, those that need attention first."""
        return letters_of(self._tree, where)

    def kept(self, index: int) -> int | None:
        """Return the bytes that autograd saves for backward in the subtree of module `index`; None until measured."""
        if self._kept is None:
            return None
        return self._kept.sum(index, index + self._tree.modules[index].subtree_modules)

    def time(self, index: int, *, own: bool) -> float | None:
        """Return the seconds of a step in a module, `own` without what it calls; None if unknown, or if it did not run."""
        found = module_time(self._tree, index)
        return None if found is None else found.own if own else found.total

    def recomputed(self, index: int) -> bool:
        """Whether backward recomputes anything in the subtree of module `index`."""
        return self._recomputed.find(1, index, index + self._tree.modules[index].subtree_modules) >= 0

    def norm(self, where: range) -> float | None:
        """Return the joint gradient norm of a range of parameters, None if it has none."""
        return None if self._current is None else self._current.norm(where)

    def is_part(self, where: range) -> bool:
        """Whether the norm of a range is a lower bound: of the parts of sharded parameters that the shown process has."""
        return self._is_part and self._shards.find(1, where.start, where.stop) >= 0

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

    def rates(self, where: range) -> list[float]:
        """Return the different learning rates of the parameters of a range, in ascending order. Linear in its length once."""
        groups = self._groups_in.get(where)
        if groups is None:
            groups = frozenset(key for index in where for key in self._groups.get(index, ()))
            self._groups_in[where] = groups
        return sorted({rate for key in groups if (rate := self._rates[key]) is not None})

    def is_ratio_old(self, where: range) -> bool:
        """Return whether any update ratio of a range of parameters is old. Linear in the length of the range."""
        steps = self.ratio_steps(where)
        return steps is not None and steps[0] in self.ages.old

    def ratio_steps(self, where: range) -> tuple[int, int] | None:
        """Return the first and the last step of the update ratios of a range. Linear in its length."""
        if where not in self._ratio_steps:
            self._ratio_steps[where] = ratio_steps(self._tree, where)
        return self._ratio_steps[where]

    def is_passing_old(self, index: int) -> bool:
        """Return whether the gradient that flows through module `index` is of an old step."""
        return measured_step(self._tree, index) in self.ages.old

    def recent(self, where: range) -> list[float | None]:
        """Return the newest joint norms of a range of parameters, oldest first."""
        return [norms.norm(where) for _, norms in self._recent]
