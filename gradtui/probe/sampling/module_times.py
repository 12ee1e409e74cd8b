"""Add up the times of module calls by module, and choose what is typical of several steps. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradtui.probe.autograd import OUTSIDE
from gradtui.protocol.module_times import ModuleTimesMeasured

_KEPT = 16
"""The newest steps of each optimizer of which a typical one is made."""


class TimedCalls:
    """The calls of modules in one step, with the time of each in nanoseconds, without what it calls."""

    def __init__(self) -> None:
        self.own_ns = 0
        """What timing has taken on the host."""
        self.events: list[Any] = []
        """On a device: the events in their order."""
        self.between: list[tuple[int, bool]] = []
        """For each two events next to each other: the call whose code ran, and whether in backward."""
        self._modules: list[int] = []
        self._callers: list[int] = []
        self._is_outermost: list[bool] = []
        """By call: whether no other call of its module is around it."""
        self.times: tuple[list[int], list[int]] = [], []
        """By call: its own time in forward, and in backward. On a device, nothing until `by_module`."""
        self._running: Counter[int] = Counter()
        self._first: dict[int, int] = {}
        """By module: its first call."""

    def begin(self, module: int, caller: int, *, again: bool) -> int:
        """Begin a call, and return its number. One that runs `again` in backward is within the calls that it first ran in."""
        call = len(self._modules)
        first = self._first.setdefault(module, call)
        if again and caller == OUTSIDE and first != call:
            caller = self._callers[first]
        self._modules.append(module)
        self._callers.append(caller)
        self._is_outermost.append(not self._running[module])
        self._running[module] += 1
        self.times[0].append(0)
        self.times[1].append(0)
        return call

    def end(self, call: int) -> None:
        """End a call."""
        self._running[self._modules[call]] -= 1

    def has_ended(self) -> bool:
        """Return whether the device has reached all events. Waits for nothing."""
        return all(event.query() for event in reversed(self.events))

    def by_module(self, parents: Sequence[int]) -> SampledTimes | None:
        """Return the times by module. `parents` has the parent of each module. None if the events are in no order.

        A module that was not called itself, such as a list of modules, has the times of its children.
        """
        pairs = zip(self.events, self.events[1:])
        for (call, is_backward), (begin, end) in zip(self.between, pairs):
            nanoseconds = round(begin.elapsed_time(end) * 1e6)
            if nanoseconds < 0:
                # The script has changed the stream: events of several streams are in no order.
                return None
            if call >= 0:
                self.times[is_backward][call] += nanoseconds
        forward, backward = (self._summed(times, parents) for times in self.times)
        return SampledTimes(*forward, *backward, self.own_ns)

    def _summed(self, own: Sequence[int], parents: Sequence[int]) -> tuple[list[int], list[int]]:
        count = len(parents)
        totals, by_module, own_by_module = list(own), [0] * count, [0] * count
        for call in reversed(range(len(own))):
            module, caller = self._modules[call], self._callers[call]
            if caller >= 0:
                totals[caller] += totals[call]
            if 0 <= module < count:
                own_by_module[module] += own[call]
                if self._is_outermost[call]:
                    by_module[module] += totals[call]
        for module in reversed(range(count)):
            if (parent := parents[module]) >= 0 and parent not in self._first:
                by_module[parent] += by_module[module]
        return by_module, own_by_module


@dataclass(frozen=True)
class SampledTimes:
    """The times of one step by module, in nanoseconds: with the modules that it calls, and without."""

    forward: Sequence[int]
    own_forward: Sequence[int]
    backward: Sequence[int]
    own_backward: Sequence[int]
    cost: int
    """What timing has taken on the host."""

    @property
    def whole(self) -> int:
        """The time of all modules together."""
        return sum(self.own_forward) + sum(self.own_backward)


class ModuleTimes:
    """The times of the newest steps of each optimizer."""

    def __init__(self) -> None:
        self._newest: dict[int, deque[SampledTimes]] = {}

    def add(self, optimizer: int, times: SampledTimes) -> None:
        """Add a step of an optimizer."""
        self._newest.setdefault(optimizer, deque(maxlen=_KEPT)).append(times)

    def clear(self) -> None:
        """Forget all steps: later ones take another time."""
        self._newest.clear()

    def measured(self, at: float, step: int, listing: int, *, is_on_device: bool) -> ModuleTimesMeasured | None:
        """Return the times of a round, with one step of each optimizer; None before the first.

        Of the steps of an optimizer the mean of those counts whose whole time is in the middle half: the times of modules
        still add up, and a step that something else has slowed down does not count.
        """
        if not self._newest:
            return None
        typical = [_middle(steps) for steps in self._newest.values()]
        forward, own_forward, backward, own_backward = (
            _mean([[getattr(each, name) for each in steps] for steps in typical])
            for name in ("forward", "own_forward", "backward", "own_backward")
        )
        cost = sum(sum(each.cost for each in steps) / len(steps) for steps in typical) / len(typical)
        return ModuleTimesMeasured(
            at, step, forward, own_forward, backward, own_backward,
            sum(map(len, self._newest.values())), cost / 1e9, is_on_device, listing=listing,
        )  # fmt: skip


def _middle(steps: Sequence[SampledTimes]) -> list[SampledTimes]:
    ordered = sorted(steps, key=lambda each: each.whole)
    quarter = len(ordered) // 4 if len(ordered) > 3 else (len(ordered) - 1) // 2
    return ordered[quarter : len(ordered) - quarter]


def _mean(of_optimizers: Sequence[Sequence[Sequence[int]]]) -> tuple[int, ...]:
    """Return the sum over optimizers of the mean over their steps, by module."""
    means = [[sum(values) / len(steps) for values in zip(*steps)] for steps in of_optimizers]
    return tuple(round(sum(values)) for values in zip(*means))
