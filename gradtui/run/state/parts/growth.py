"""Memory that rises at one and the same boundary, step after step: a graph that is kept, a list that is never emptied. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gradtui.dataclass import dataclass
from gradtui.protocol.events import MemoryMeasured

WINDOW = 24
"""Number of memory measurements compared. The first few of a run do not count: the optimizer creates its state then."""
_SETTLING_STEPS = 3
_MIN_LATE_SHARE = 0.25
"""Of the growth, in the second half of the steps: half of it where each step keeps as much, less where growth levels off."""
_MIN_BYTES = 1 << 20
_MIN_SHARE = 0.005
"""Of the total: less is what allocators and Python itself come to."""


@dataclass(frozen=True)
class Growth:
    """The total at the end of a phase has grown from `since_step` to `step`, most of it in one category."""

    since_step: int
    step: int
    bytes: int
    category: str
    category_bytes: int


class GrowthWatch:
    """Keeps the newest memory measurements of one phase and detects growth."""

    def __init__(self) -> None:
        self._measurements: list[MemoryMeasured] = []
        self._report_at = 0
        self.current: Growth | None = None
        """The growth over the newest measurements."""

    def add(self, measured: MemoryMeasured) -> Growth | None:
        """Add a measurement and return growth that was not reported yet. It is reported again after the same growth once
        more."""
        if measured.step <= _SETTLING_STEPS or measured.held.total is None:
            return None
        self._measurements.append(measured)
        del self._measurements[:-WINDOW]
        growth = self.current = growth_of(self._measurements) if len(self._measurements) == WINDOW else None
        if growth is None or measured.held.total < self._report_at:
            return None
        self._report_at = measured.held.total + growth.bytes
        return growth


def growth_of(measurements: Sequence[MemoryMeasured]) -> Growth | None:
    """Return the growth over measurements of one phase: each third lies completely above the one before, by more than the
    fluctuation of allocators, and the growth goes on in the second half of the steps.

    The first steps of a run are measured more often than those after them. So it is steps that are halved, not measurements.
    """
    totals = [measured.held.total or 0 for measured in measurements]
    third = len(totals) // 3
    parts = (totals[:third], totals[third : 2 * third], totals[2 * third :])
    rises = all(max(before) < min(after) for before, after in pairwise(parts))
    grown = totals[-1] - totals[0]
    if not rises or grown < max(_MIN_BYTES, _MIN_SHARE * totals[-1]):
        return None
    middle = (measurements[0].step + measurements[-1].step) / 2
    late = next(total for measured, total in zip(measurements, totals) if measured.step >= middle)
    if totals[-1] - late < _MIN_LATE_SHARE * grown:
        return None
    first, last = measurements[0].held, measurements[-1].held
    before = first.within_total()
    by_category = {name: (size or 0) - (before.get(name) or 0) for name, size in last.within_total().items()}
    category = max(by_category, key=lambda name: by_category[name])
    return Growth(measurements[0].step, measurements[-1].step, grown, category, by_category[category])
