"""Add up the times of module calls by the calls around them, and choose what is typical of several steps. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import OUTSIDE
from gradtui.protocol.module_times import ModuleTimesMeasured

_KEPT = 16
"""The newest steps of each optimizer whose median counts."""
_MAX_PLACES = 100_000
"""A model that calls itself ever deeper has no end of places."""


class CallPlaces:
    """Where modules are called: a place is a module and the place of the call around it. It is the same in each step."""

    def __init__(self) -> None:
        self.modules: list[int] = []
        """By place. A place has a higher number than the one around it."""
        self.around: list[int] = []
        self.is_outermost: list[bool] = []
        """By place: whether no other call of its module is around it."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._first: dict[int, int] = {}
        """By module: its first place."""

    def of(self, module: int, around: int) -> int:
        """Return the place of a call."""
        found = self._numbers.get((around, module))
        if found is None:
            found = self._numbers[around, module] = len(self.modules)
            self.modules.append(module)
            self.around.append(around)
            self.is_outermost.append(not self._is_within(module, around))
            self._first.setdefault(module, found)
        return found

    def again(self, module: int) -> int:
        """Return the place of a call that backward computes again, where nothing says what called it first."""
        return self._first[module] if module in self._first else self.of(module, OUTSIDE)

    def is_called(self, module: int) -> bool:
        """Return whether a module has been called in any place."""
        return module in self._first

    def is_full(self) -> bool:
        """Return whether there are too many places."""
        return len(self.modules) > _MAX_PLACES

    def _is_within(self, module: int, place: int) -> bool:
        while place >= 0:
            if self.modules[place] == module:
                return True
            place = self.around[place]
        return False


@dataclass
class TimedStep:
    """The times of one step, by place, in nanoseconds without what is called there."""

    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)
    cost: int = 0
    """What timing has taken on the host."""
    events: list[Any] = field(default_factory=list)
    """On a device: the events in their order. The times are unknown until `read`."""
    between: list[tuple[int, bool]] = field(default_factory=list)
    """For each two events next to each other: the place whose code ran, and whether in backward."""

    def add(self, place: int, nanoseconds: int, is_backward: bool) -> None:
        """Add to the time of a place."""
        times = self.backward if is_backward else self.forward
        times[place] = times.get(place, 0) + nanoseconds

    def has_ended(self) -> bool:
        """Return whether the device has reached all events. Waits for nothing."""
        return all(event.query() for event in reversed(self.events))

    def read(self) -> bool:
        """Read the times between the events. Return False if these are in no order: the script has changed the stream."""
        took = [begin.elapsed_time(end) for begin, end in zip(self.events, self.events[1:])]
        if min(took, default=0.0) < 0.0:
            return False
        for (place, is_backward), milliseconds in zip(self.between, took):
            self.add(place, round(milliseconds * 1e6), is_backward)
        return True


class ModuleTimes:
    """The times of the newest steps of each optimizer."""

    def __init__(self) -> None:
        self.places = CallPlaces()
        self._newest: dict[int, deque[TimedStep]] = {}

    @property
    def count(self) -> int:
        """The number of steps whose times are kept."""
        return sum(map(len, self._newest.values()))

    def add(self, optimizer: int, step: TimedStep) -> None:
        """Add a step of an optimizer."""
        self._newest.setdefault(optimizer, deque(maxlen=_KEPT)).append(step)

    def clear(self) -> None:
        """Forget all steps: later ones take another time."""
        self.places = CallPlaces()
        self._newest.clear()

    def measured(
        self, at: float, step: int, listing: int, parents: Sequence[int], *, is_on_device: bool
    ) -> ModuleTimesMeasured | None:
        """Return the times of a round, with one step of each optimizer; None before the first.

        `parents` has the parent of each module. A module that is not called itself, such as a list of modules, has the times of
        its children. Of each place the median counts, and the times of modules are sums of these: so they add up, and what
        slows down one call in one step does not count.
        """
        if not self._newest:
            return None
        forward, backward = (
            self._by_module([[getattr(each, name) for each in steps] for steps in self._newest.values()], parents)
            for name in ("forward", "backward")
        )
        steps = [each for newest in self._newest.values() for each in newest]
        cost = statistics.median(each.cost for each in steps) / 1e9
        return ModuleTimesMeasured(at, step, *forward, *backward, len(steps), cost, is_on_device, listing=listing)

    def _by_module(
        self, of_optimizers: Sequence[Sequence[dict[int, int]]], parents: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        places, count = self.places, len(parents)
        own = [sum(_typical(steps, place) for steps in of_optimizers) for place in range(len(places.modules))]
        whole, totals, own_by_module = list(own), [0] * count, [0] * count
        for place in reversed(range(len(own))):
            module, around = places.modules[place], places.around[place]
            if around >= 0:
                whole[around] += whole[place]
            if 0 <= module < count:
                own_by_module[module] += own[place]
                if places.is_outermost[place]:
                    totals[module] += whole[place]
        for module in reversed(range(count)):
            if (parent := parents[module]) >= 0 and not places.is_called(parent):
                totals[parent] += totals[module]
        return tuple(totals), tuple(own_by_module)


def _typical(steps: Sequence[dict[int, int]], place: int) -> int:
    """Return the median time of a place, times the share of the steps in which it ran."""
    times = [step[place] for step in steps if place in step]
    return round(statistics.median(times) * len(times) / len(steps)) if times else 0
