"""Histories of bounded size: a curve that keeps its spikes, rows of norms, norms of micro-steps. Pure; owned by one thread."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gradtui.protocol.events import MicroStepMeasured

_MIN_ROOM = 4
MAX_MICRO_STEPS = 256
"""Micro-steps of one step that are kept: the first ones."""


class _History:
    """A history that grows by one entry at a time and keeps at most a given number of entries, over a run of any length.

    The newest quarter is complete, because plots show it in most detail. Each older entry represents a group of neighbours. All
    groups have one size, so that the old entries cover the run evenly, however long it gets.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._groups = 0
        """Number of oldest entries that represent a group each; the first always remains a group of its own."""
        self._group_size = 1
        self._last_group = 0
        """Number of entries in the newest group so far."""

    def __len__(self) -> int:
        return len(self.steps)

    def _choose(self, before: int, first: int, second: int, weight: int) -> int:
        """Return which of two entries represents both; `before` is the kept entry in front of them. All are indexes.

        `first` represents `weight` times as many entries as `second`.
        """
        raise NotImplementedError

    def _keep(self, indices: list[int]) -> None:
        self.steps = [self.steps[index] for index in indices]

    def _start_again(self) -> None:
        self.steps = []
        self._groups, self._group_size, self._last_group = 0, 1, 0

    def _thin(self, room: int) -> None:
        """If there are more than `room` entries, merge until they are fewer, by at least a quarter of `room`."""
        if len(self.steps) <= room:
            return
        self._fold(len(self.steps) - room // 4)
        while self._groups > max(2, room // 2):
            self._merge_pairs()

    def _fold(self, end: int) -> None:
        kept = list(range(self._groups))
        for index in range(self._groups, end):
            if self._last_group >= self._group_size or len(kept) < 2:
                kept.append(index)
                self._last_group = 1
            else:
                kept[-1] = self._choose(kept[-2], kept[-1], index, self._last_group)
                self._last_group += 1
        self._groups = len(kept)
        self._keep([*kept, *range(end, len(self.steps))])

    def _merge_pairs(self) -> None:
        """Merge the groups in pairs, except the first."""
        kept = [0]
        for index in range(1, self._groups, 2):
            paired = index + 1 < self._groups
            kept.append(self._choose(kept[-1], index, index + 1, 1) if paired else index)
        if (self._groups - 1) % 2 == 0:
            self._last_group += self._group_size
        self._group_size *= 2
        tail = range(self._groups, len(self.steps))
        self._groups = len(kept)
        self._keep([*kept, *tail])


class Series(_History):
    """A curve of (step, value) with at most `capacity` points.

    A group keeps the point that stands out most (a non-finite value, else the one furthest from the curve before it), so that
    spikes survive.
    """

    _means: list[float] | None = None
    """None in a state that an older version has written."""

    def __init__(self, capacity: int = 2048) -> None:
        if capacity < _MIN_ROOM:
            raise ValueError(f"a series needs room for at least {_MIN_ROOM} points, not {capacity}")
        super().__init__()
        self._capacity = capacity
        self.values: list[float] = []
        self._means = []

    @property
    def means(self) -> list[float]:
        """By point: the mean of the finite values for which it stands, for averages: what stands out is no average."""
        if self._means is None:
            self._means = list(self.values)
        return self._means

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self.steps, self.values))

    @property
    def last(self) -> float | None:
        """The newest value, None if there is none."""
        return self.values[-1] if self.values else None

    def append(self, step: int, value: float) -> None:
        """Add a point. Steps must be in order."""
        self.means.append(value)
        self.steps.append(step)
        self.values.append(value)
        self._thin(self._capacity)

    def extend(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add several points. Steps must be in order."""
        self.means.extend(values)
        self.steps.extend(steps)
        self.values.extend(values)
        self._thin(self._capacity)

    def replace_last(self, value: float) -> None:
        """Replace the newest value. The series must have one."""
        self.means[-1] = self.values[-1] = value

    def cut(self, step: int) -> None:
        """Remove the points from a step on."""
        end = bisect_left(self.steps, step)
        if end < self._groups:
            # Of the newest group it is not known how many points it still stands for.
            self._groups, self._last_group = end, self._group_size
        self._keep([*range(end)])

    def _keep(self, indices: list[int]) -> None:
        super()._keep(indices)
        means = self.means
        self._means = [means[index] for index in indices]
        self.values = [self.values[index] for index in indices]

    def _choose(self, before: int, first: int, second: int, weight: int) -> int:
        chosen = first if stands_out(self.values[before], self.values[first], self.values[second]) else second
        means = self.means
        means[chosen] = _mean(means[first], means[second], weight)
        return chosen


def _mean(first: float, second: float, weight: int) -> float:
    """Return the mean of two means, of which the first counts `weight` times; only finite ones count."""
    if not math.isfinite(first) or not math.isfinite(second):
        return first if math.isfinite(first) else second
    return (first * weight + second) / (weight + 1)


def stands_out(before: float, one: float, other: float) -> bool:
    """Return whether the first of two neighbours stands for both, and not the second: it is not finite, or else it is further
    from the value `before` them. So spikes survive."""
    if not math.isfinite(one):
        return True
    if not math.isfinite(other):
        return False
    base = before if math.isfinite(before) else one
    return abs(one - base) > abs(other - base)


_NOTHING = Series()


class RatioHistory:
    """The update-to-weight ratios of each measured parameter over steps.

    If there is no room, the curve that was updated longest ago is removed.

    Args:
        points: maximum number of points of all curves together.
        each: maximum number of points of one curve.
    """

    def __init__(self, points: int = 200_000, each: int = 512) -> None:
        self._room, self._each = points, each
        self._curves: dict[int, Series] = {}
        """By place of the parameter, the newest last."""
        self._points = 0

    def append(self, parameter: int, step: int, ratio: float) -> None:
        """Add the update ratio of a parameter at a step."""
        curve = self._curves.pop(parameter, None) or Series(self._each)
        before = len(curve)
        curve.append(step, ratio)
        self._curves[parameter] = curve
        self._points += len(curve) - before
        while self._points > self._room and len(self._curves) > 1:
            self._points -= len(self._curves.pop(next(iter(self._curves))))

    def of(self, parameter: int) -> Series:
        """Return the curve of one parameter, empty if it was never measured. Do not modify it."""
        return self._curves.get(parameter, _NOTHING)

    @property
    def parameters(self) -> Iterable[int]:
        """Indexes of the parameters that have a curve."""
        return self._curves.keys()

    def relisted(self, indices: Mapping[int, int]) -> RatioHistory:
        """The same curves by new places of the parameters; those that have none are left out."""
        history = RatioHistory(self._room, self._each)
        history._curves = {indices[index]: curve for index, curve in self._curves.items() if index in indices}
        history._points = sum(len(curve) for curve in history._curves.values())
        return history

    def __len__(self) -> int:
        return self._points


class RowHistory(_History):
    """Rows of per-parameter norms, with at most `cells` numbers in total: the more parameters, the fewer rows.

    It keeps at least 16 rows, however wide they are. A group keeps its newest row.
    """

    def __init__(self, cells: int = 2_000_000, longest: int = 512) -> None:
        super().__init__()
        self._cells = cells
        self._longest = longest
        self.rows: list[tuple[float | None, ...]] = []

    def append(self, step: int, row: tuple[float | None, ...]) -> None:
        """Add a row. It replaces the newest row of the same step. A row of another width (another model) clears the history."""
        if self.rows and len(self.rows[-1]) != len(row):
            self.clear()
        if self.steps and self.steps[-1] == step:
            self.rows[-1] = row
            return
        self.steps.append(step)
        self.rows.append(row)
        self._thin(max(16, min(self._longest, self._cells // max(1, len(row)))))

    def clear(self) -> None:
        """Remove all rows."""
        self._start_again()
        self.rows = []

    def _keep(self, indices: list[int]) -> None:
        super()._keep(indices)
        self.rows = [self.rows[index] for index in indices]

    def _choose(self, before: int, first: int, second: int, weight: int) -> int:  # noqa: ARG002
        return second


class MicroStepNorms:
    """The norms of the step under way and of the last one that is over."""

    def __init__(self) -> None:
        self.on = False
        """Whether micro-steps are followed now."""
        self._current: tuple[int, list[float]] = (0, [])
        self._previous: tuple[int, list[float]] = (0, [])

    def take(self, event: MicroStepMeasured) -> None:
        """One more was measured. The first of a step ends the step before; after a step left out there may be two alike."""
        step, norms = self._current
        if event.number == 1 or event.step != step:
            self._previous = (step, norms) if norms else self._previous
            self._current = step, norms = event.step, []
        if len(norms) < MAX_MICRO_STEPS:
            norms.append(event.total)

    def applied(self, step: int) -> None:
        """Record that an optimizer has applied the accumulated gradients of this step."""
        if self._current[1] and self._current[0] == step:
            self._previous = self._current

    def last(self) -> tuple[int, list[float]]:
        """The step and its norms in order: of the last step that is over, of the one under way while there is none."""
        return self._previous if self._previous[1] else self._current


def joint_norm(norms: Sequence[float | None]) -> float | None:
    """Return the L2 norm of the concatenation of vectors with these L2 norms: NaN if any is; None if none is known."""
    if not norms:
        return None
    known: Sequence[float]
    try:
        # Mostly all are known, and trying takes a fifth of the time of checking each.
        joined, known = math.hypot(*norms), norms  # type: ignore[arg-type, assignment]
    except TypeError:
        # Without zeros too, which change no norm: a filter without a function is faster.
        known = [*filter(None, norms)]
        if not known and norms.count(None) == len(norms):
            return None
        joined = math.hypot(*known)
    # `math.hypot` returns Inf if any argument is Inf, even if another is NaN.
    return math.nan if joined == math.inf and any(map(math.isnan, known)) else joined
