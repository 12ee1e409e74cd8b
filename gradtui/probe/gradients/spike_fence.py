"""The value above which a loss or a gradient norm is a spike, from the values before it. Pure.

A value is a spike if it lies above the median of the values before it by more than each of these:

- four times as much as the highest of them does;
- ten standard deviations, which are estimated from their median absolute deviation (times 1.4826, as for a normal
  distribution: Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, 1993);
- a share of the median;
- a twentieth of what the values of the run began with. A loss that has become tiny may vary by large factors.

The newest 128 values count, and below 16 there is no spike. Of these first ones, two that would be spikes are left out.
Spikes are not among the values that others are compared with. If three of these 128 are, the script has steps of that
kind, and they are usual. If eight values in a row are spikes, the values have another level, and all begins anew. Only
large values are spikes, never small ones.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence

_KEPT, _MIN = 128, 16
_HIGHEST, _DEVIATIONS, _OF_FIRST = 4.0, 10.0, 0.05
_NORMAL = 1.4826
_USUAL, _NEW_LEVEL = 3, 8
_RENEWED = 8
"""Values between two computations of the limit."""


class SpikeFence:
    """Receives the values of one kind, in their order. `share` is that of the median."""

    def __init__(self, share: float) -> None:
        self.limit = math.inf
        """A larger value is a spike."""
        self.usual = math.nan
        """The median of the values before it."""
        self._share = share
        self._values: deque[tuple[float, bool]] = deque(maxlen=_KEPT)
        """Each value, and whether it is a spike."""
        self._first: float | None = None
        """The median of the first values of the run, without its sign."""
        self._in_a_row = 0
        self._age = 0

    def is_spike(self, value: float) -> bool:
        """Return whether this value would be a spike, and the value before it was none."""
        if value > self.limit and self._age:
            self.renew()
        return self.limit < value < math.inf and not self._in_a_row

    def add(self, value: float) -> None:
        """Add a value."""
        self.take(value)
        if self._age >= _RENEWED or len(self._values) == _MIN:
            self.renew()

    def take(self, value: float) -> None:
        """Add one of several values, after which `renew` is called. A value that is not finite is left out."""
        if not math.isfinite(value):
            return
        is_spike = value > self.limit
        self._values.append((value, is_spike))
        self._in_a_row = self._in_a_row + 1 if is_spike else 0
        if self._in_a_row >= _NEW_LEVEL:
            newest = [(each, False) for each, _ in list(self._values)[-_NEW_LEVEL:]]
            self.clear()
            self._values.extend(newest)
        self._age += 1

    def extend(self, values: Sequence[float]) -> None:
        """Add several values."""
        for value in values[-_KEPT:]:
            self.take(value)
        self.renew()

    @property
    def is_above(self) -> bool:
        """Whether the newest value was a spike."""
        return self._in_a_row > 0

    @property
    def missing(self) -> int:
        """The number of values without which there is no limit; 0 if there is one."""
        return max(1, _MIN - len(self._values)) if self.begins_anew else 0

    @property
    def begins_anew(self) -> bool:
        """Whether there are too few values to compare others with."""
        return math.isinf(self.limit)

    def end_row(self) -> None:
        """Compare the next value as if the one before it had been no spike."""
        self._in_a_row = 0

    def clear(self) -> None:
        """Begin anew: what follows is not comparable with what was."""
        self._values.clear()
        self.limit, self._in_a_row, self._age = math.inf, 0, 0

    def renew(self) -> None:
        """Compute the limit again."""
        self._age = 0
        if len(self._values) < _MIN:
            return
        if self.begins_anew:
            self._mark_highest()
        spikes = sum(is_spike for _, is_spike in self._values)
        values = [value for value, is_spike in self._values if not is_spike or spikes >= _USUAL]
        self.usual, self.limit = statistics.median(values), self._limit_of(values)

    def _mark_highest(self) -> None:
        """Mark the values among the first ones that would be spikes among the others."""
        values = sorted(value for value, _ in self._values)
        self._first = abs(statistics.median(values)) if self._first is None else self._first
        while len(values) > len(self._values) - _USUAL + 1 and values[-1] > self._limit_of(values[:-1]):
            values.pop()
        self._values = deque([(value, value > values[-1]) for value, _ in self._values], maxlen=_KEPT)

    def _limit_of(self, values: Sequence[float]) -> float:
        usual = statistics.median(values)
        deviation = _NORMAL * statistics.median([abs(value - usual) for value in values])
        above = max(
            _HIGHEST * (max(values) - usual),
            _DEVIATIONS * deviation,
            self._share * abs(usual),
            _OF_FIRST * (self._first or 0.0),
        )
        return usual + above if above > 0 else math.inf
