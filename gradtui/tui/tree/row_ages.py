"""Which measurements of the rows are old, fast enough to query for every visible row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class RowAges:
    """The ages of one row of per-parameter norms, and of other values of known steps.

    Args:
        oldest_fresh: see `freshness.oldest_fresh_step`.
        norms_step: the step of the norms, None if there are none.
        norm_steps: the step of each norm; None where all are of `norms_step`.
        others: the steps of the other values.
    """

    def __init__(
        self,
        oldest_fresh: int,
        norms_step: int | None = None,
        norm_steps: Sequence[int | None] | None = None,
        others: Iterable[int] = (),
    ) -> None:
        self.norms_step = norms_step
        self._norm_steps = norm_steps
        # Sets are made in C, also those of many parameters.
        steps: set[int | None] = {*(norm_steps or (norms_step,)), *others}
        self._steps = [step for step in steps if step is not None]
        self._oldest = min(self._steps, default=oldest_fresh)
        self._ranges: dict[range, bool] = {}
        self.old: frozenset[int] = frozenset()
        """The steps whose values are old; empty as long as every value is fresh."""
        self.grow(oldest_fresh)

    def grow(self, oldest_fresh: int) -> bool:
        """Apply the present first fresh step. Return whether other values are old than before."""
        if oldest_fresh <= self._oldest:
            # The oldest value is fresh: so are all others.
            changed, self.old = bool(self.old), frozenset()
        else:
            before, self.old = self.old, frozenset([step for step in self._steps if step < oldest_fresh])
            changed = self.old != before
        if changed:
            self._ranges = {}
        return changed

    def is_norm_old(self, where: range) -> bool:
        """Return whether any norm of a range of parameters is old."""
        if self._norm_steps is None:
            return self.norms_step in self.old
        if where not in self._ranges:
            self._ranges[where] = not self.old.isdisjoint(self._norm_steps[where.start : where.stop])
        return self._ranges[where]
