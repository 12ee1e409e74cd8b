"""Which measurements of the rows are old, fast enough to query for every visible row. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class RowAges:
    """The ages of one row of per-parameter norms, and of any value of a known step.

    Args:
        oldest_fresh: see `freshness.oldest_fresh_step`.
        norms_step: the step of the norms, None if there are none.
        norm_steps: the step of each norm; None where all are of `norms_step`.
    """

    def __init__(
        self, oldest_fresh: int, norms_step: int | None = None, norm_steps: Sequence[int | None] | None = None
    ) -> None:
        self.of = oldest_fresh, norms_step, norm_steps
        self._oldest_fresh = oldest_fresh
        # Mostly all are fresh, and a set of the steps is made in C.
        is_mixed = norm_steps is not None and self.is_old(min({*norm_steps} - {None}, default=None))  # type: ignore[type-var]
        self._steps = norm_steps if is_mixed else None
        self._all_are_old = norm_steps is None and self.is_old(norms_step)
        self._ranges: dict[range, bool] = {}

    def is_old(self, step: int | None) -> bool:
        """Return whether a value of a step is old. One of no step is not."""
        return step is not None and step < self._oldest_fresh

    def is_norm_old(self, where: range) -> bool:
        """Return whether any norm of a range of parameters is old."""
        if self._steps is None:
            return self._all_are_old
        if where not in self._ranges:
            known = (step for step in self._steps[where.start : where.stop] if step is not None)
            self._ranges[where] = self.is_old(min(known, default=None))
        return self._ranges[where]
