"""Leave out every other value of what a script logs often, and keep what it logs seldom, and what stands out. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import field, replace

from gradtui.dataclass import dataclass
from gradtui.protocol.metrics import MetricPoints, MetricsLogged

_OFTEN = 1024
"""Values of a metric from which on they give way."""


@dataclass
class LoggedValues:
    """How many values each metric has in a recording, and where its first, smallest and largest ones are."""

    _counts: Counter[str] = field(default_factory=Counter)
    _smallest: dict[str, tuple[float, int]] = field(default_factory=dict)
    _largest: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By name: the value and its step."""
    _first: dict[str, int] = field(default_factory=dict)

    def take(self, event: MetricsLogged) -> None:
        """Add the values of an event."""
        for points in event.points:
            self._counts[points.name] += len(points.steps)
            known = [pair for pair in zip(points.values, points.steps) if math.isfinite(pair[0])]
            if not known:
                continue
            name = points.name
            self._first.setdefault(name, known[0][1])
            self._smallest[name] = min(self._smallest.get(name, known[0]), *known)
            self._largest[name] = max(self._largest.get(name, known[0]), *known)

    def fewer(self, event: MetricsLogged, *, drops_single: bool) -> MetricsLogged:
        """Return the event with one of every two values of each metric that has many, without metrics that have none left.

        `drops_single`: where the event has a single value of such a metric, it goes.
        """
        halved = (self._halved(each, drops_single=drops_single) for each in event.points)
        return replace(event, points=tuple(each for each in halved if each.steps))

    def _halved(self, points: MetricPoints, *, drops_single: bool) -> MetricPoints:
        name, stays = points.name, set[int]()
        if self._counts[name] <= _OFTEN:
            return points
        if name in self._first:
            stays = {self._first[name], self._smallest[name][1], self._largest[name][1]}
        is_single = len(points.steps) == 1
        kept = [
            (step, value)
            for index, (step, value) in enumerate(zip(points.steps, points.values))
            if step in stays or (not drops_single if is_single else index % 2 == 0)
        ]
        return replace(points, steps=tuple(step for step, _ in kept), values=tuple(value for _, value in kept))
