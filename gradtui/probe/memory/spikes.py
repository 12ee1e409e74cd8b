"""Find steps whose memory peak is far above those of the steps around them. Pure.

A peak stands out if it lies above Tukey's outer fence of the steps before it: the upper quartile plus three times the
interquartile range (Tukey, Exploratory Data Analysis, 1977). Small differences are none. If the following steps stay above the
fence, no step stands out: the script needs more memory from then on. Nor does one if a tenth of the steps before it were about
as high: a script may train with steps of several kinds, as a GAN does.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase

_KEPT = 64
"""Peaks of the steps before, by which a peak is judged."""
_MIN_STEPS = 12
"""Steps before a first peak can stand out."""
_MIN_BYTES, _MIN_SHARE = 1 << 20, 0.05
"""A peak stands out by at least this many bytes, and by this share of the usual peak."""
_MAX_STEPS = 4
"""A spike lasts this many steps at most."""
_USUAL_ONE_IN = 10
"""A peak is usual if one step in this many has it."""


@dataclass(frozen=True)
class Spike:
    """A step whose peak stands out, or the first of a few in a row."""

    step: int
    phase: Phase | None
    """The phase with the highest total; None if unknown."""
    peak: int
    usual: int
    """The median of the peaks before it."""
    steps: int = 1


class SpikeDetector:
    """Receives the peak of each step, or of each step that is measured."""

    def __init__(self) -> None:
        self.fence = math.inf
        """Peaks above this many bytes stand out."""
        self._peaks: deque[int] = deque(maxlen=_KEPT)
        self._all: deque[int] = deque(maxlen=_KEPT)
        """The same with those of spikes."""
        self._open: Spike | None = None
        """A spike that may last longer."""
        self._above: list[int] = []
        """The peaks of its steps."""

    def add(self, step: int, phase: Phase | None, peak: int) -> Spike | None:
        """Add a step's peak in bytes. Return the spike that is over with this step."""
        if peak > self.fence:
            self._above.append(peak)
            if self._open is None:
                self._open = Spike(step, phase, peak, int(statistics.median(self._peaks)))
            elif peak > self._open.peak:
                self._open = replace(self._open, phase=phase, peak=peak)
            self._open = replace(self._open, steps=len(self._above))
            if len(self._above) > _MAX_STEPS:
                self._peaks.clear()
                self._all.clear()
                self._peaks.extend(self._above)
                self._end()
            return None
        spike = self._open
        self._peaks.append(peak)
        self._above.append(peak)
        self._end()
        return spike

    def finish(self) -> Spike | None:
        """Return the spike of the last steps of the run."""
        spike = self._open
        self._end()
        return spike

    def _end(self) -> None:
        self._all.extend(self._above)
        self._open, self._above = None, []
        self._set_fence()

    def _set_fence(self) -> None:
        if len(self._peaks) < _MIN_STEPS:
            self.fence = math.inf
            return
        lower, usual, upper = statistics.quantiles(self._peaks, n=4)
        highest = sorted(self._all, reverse=True)
        of_a_kind = highest[-(-len(highest) // _USUAL_ONE_IN) - 1] * (1 + _MIN_SHARE)
        self.fence = max(upper + 3 * (upper - lower), usual + _MIN_BYTES, usual * (1 + _MIN_SHARE), of_a_kind)
