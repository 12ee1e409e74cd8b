"""Bounded histories: a curve that keeps its spikes, and a window of per-parameter rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


class Series:
    """A curve of (step, value) with at most `capacity` points, over a run of any length.

    When it is full, each pair of neighbouring points is reduced to the one that stands out more (a value that is not
    finite, else the one further from the curve before it), so that spikes survive and memory does not grow.
    """

    def __init__(self, capacity: int = 2048) -> None:
        if capacity < 4:
            raise ValueError(f"a series needs room for at least 4 points, not {capacity}")
        self._capacity = capacity
        self.steps: list[int] = []
        self.values: list[float] = []
        self.version = 0

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self.steps, self.values))

    @property
    def last(self) -> float | None:
        """The newest value, None while there is none."""
        return self.values[-1] if self.values else None

    def append(self, step: int, value: float) -> None:
        """Add a point; steps are expected in order."""
        self.steps.append(step)
        self.values.append(value)
        self.version += 1
        if len(self.steps) > self._capacity:
            self._halve()

    def _halve(self) -> None:
        # The newest quarter stays whole: it is the part a person is looking at.
        cut = len(self.steps) * 3 // 4
        keep = [self._stand_out(i) for i in range(0, cut - 1, 2)]
        tail = range(len(keep) * 2, len(self.steps))
        kept = [*keep, *tail]
        self.steps = [self.steps[i] for i in kept]
        self.values = [self.values[i] for i in kept]

    def _stand_out(self, index: int) -> int:
        first, second = self.values[index], self.values[index + 1]
        if not math.isfinite(first):
            return index
        if not math.isfinite(second):
            return index + 1
        before = self.values[index - 1] if index else first
        if not math.isfinite(before):
            before = first
        return index if abs(first - before) > abs(second - before) else index + 1


class RowHistory:
    """The rows of per-parameter norms seen last, few enough that `cells` numbers are never exceeded.

    With many parameters the window is shorter; with a few it reaches back further.
    """

    def __init__(self, cells: int = 2_000_000, longest: int = 512) -> None:
        self._cells = cells
        self._longest = longest
        self.steps: list[int] = []
        self.rows: list[tuple[float | None, ...]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def append(self, step: int, row: tuple[float | None, ...]) -> None:
        """Add a row; rows of another width (another model) start a new history."""
        if self.rows and len(self.rows[-1]) != len(row):
            self.clear()
        self.steps.append(step)
        self.rows.append(row)
        if len(self.rows) > self._room(len(row)):
            # Every second of the older half goes, so that the window reaches back over the run at falling detail.
            half = len(self.rows) // 2
            self.rows = self.rows[:half:2] + self.rows[half:]
            self.steps = self.steps[:half:2] + self.steps[half:]

    def _room(self, width: int) -> int:
        return max(16, min(self._longest, self._cells // max(1, width)))

    def clear(self) -> None:
        """Forget everything."""
        self.steps, self.rows = [], []

    def column(self, index: int) -> list[tuple[int, float | None]]:
        """(step, norm) of one parameter over the window."""
        return [(step, row[index]) for step, row in zip(self.steps, self.rows)]

    def norms(self, first: int, last: int) -> list[tuple[int, float | None]]:
        """(step, L2 norm over the parameters `first:last`) over the window; None where none had a gradient."""
        return [(step, joint_norm(row[first:last])) for step, row in zip(self.steps, self.rows)]


def joint_norm(norms: Sequence[float | None]) -> float | None:
    """L2 norm of the concatenation of vectors whose L2 norms are given; None if none is known."""
    known = [norm for norm in norms if norm is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    return math.hypot(*known)
