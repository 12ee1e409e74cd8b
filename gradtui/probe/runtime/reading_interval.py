"""Decide how many steps lie between two readings of what the user watches: norms and memory totals. Pure.

Every step is read unless a reading takes more than `_SHARE` of a step. Then the interval is the one that meets that share, but
never longer than `_MAX_S` of training.
"""

from __future__ import annotations

import math
from collections import deque

from gradtui.probe.runtime.sampling_schedule import StepTime, power_of_two

_SHARE = 0.03
"""The share of the script's own step time that each kind of readings may take."""
_MAX_S = 0.25
_KEPT = 32
"""Durations of readings that are kept. The shortest counts, because other processes only ever make a reading longer."""
_MIN_COSTS = 24
"""The first readings take longer, with cold caches, and are those between samples."""
_GOLDEN = (math.sqrt(5) - 1) / 2
"""The fractions of its multiples are evenly distributed, and so are those of every k-th multiple
(https://en.wikipedia.org/wiki/Equidistributed_sequence)."""


class ReadingInterval:
    """The interval between readings, by what they cost and how long the script's steps take."""

    def __init__(self, step_time: StepTime) -> None:
        self.has_common_steps = False
        """Whether readings of several ranks are to be of the same steps: the interval is then a power of two, and the steps at
        its multiples are read."""
        self.step_time = step_time
        self._costs: deque[float] = deque(maxlen=_KEPT)
        self._read = 0
        """The number of the newest step that was read."""
        self._forced_until = 0

    def force(self, steps: int) -> None:
        """Read each of the next steps, whatever that takes: checks on a device compare every one."""
        self._forced_until = self._read + steps

    @property
    def every(self) -> int:
        """The interval in steps, 1 until both durations are known well enough."""
        typical = self.step_time.typical
        if self._read < self._forced_until or len(self._costs) < _MIN_COSTS or typical <= 0:
            return 1
        wanted = math.ceil(self._cost / (_SHARE * typical))
        longest = max(1, int(_MAX_S / typical))
        every = max(1, min(wanted, longest))
        # Rounded down where the next power of two would be longer than allowed.
        return min(power_of_two(every), power_of_two(longest + 1) // 2) if self.has_common_steps else every

    @property
    def _cost(self) -> float:
        # The shortest reading of several optimizers is that of the smallest one.
        # `statistics.mean` takes as long as a reading.
        return sum(self._costs) / len(self._costs) if self.step_time.has_several_optimizers else min(self._costs)

    def steps_until(self, step: int) -> int:
        """Return how many steps lie between `step`, which begins, and the next one to read; 0 if that is `step` itself.

        With several optimizers it is 1 for any other step: equal distances could leave one of them out.
        """
        every = self.every
        if self.step_time.has_several_optimizers:
            return 0 if step * _GOLDEN % 1 < 1 / every else 1
        if self.has_common_steps:
            return -step % every
        return max(0, self._read + every - step)

    def was_read(self, step: int) -> None:
        """Record that `step` was read."""
        self._read = step

    def add_cost(self, seconds: float) -> None:
        """Record that a reading has taken `seconds`."""
        self._costs.append(seconds)
