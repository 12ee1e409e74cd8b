"""Find schedulers that change no learning rate of what trains, or end too early. Runs on the training thread."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from dataclasses import field
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.script_calls.scheduled_steps import scheduled_steps, steps_to_thousandth
from gradtui.probe.script_calls.sites import site_of
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.call_order import CallSite
from gradtui.protocol.events import RateIsFactor, ScheduleMisses, ScheduleOver

_MAX = 256
_STEPS = 2
"""Steps of a scheduler from which on it matters."""
_RISES_AGAIN = 0.1
"""Share of a cosine schedule after whose end the rate has risen noticeably: to 2 % of its maximum."""
_FEW_STEPS = 200
"""Steps of an optimizer within which no training needs a thousandth of its first learning rate."""
_AS_LONG_AGAIN = 2
"""Training with the whole data in each batch has as many steps as epochs, and may end soon after a thousandth."""
_COMPARED_STEPS = 5
"""Steps of the optimizer over which they are compared with those of the scheduler."""
_UNEQUAL = 0.1
"""Share by which the numbers may differ where the script calls both at each step. A GradScaler skips some."""
_EPOCHS = 5
"""Passes over the data after which a schedule has begun: some scripts step it in every second one, or after a warmup."""
_FACTORS = 10
"""Steps of a `LambdaLR` over which a warmup would have left its first factor."""
_UNSTEPPED = ((), 0, -1, True)
"""What `_Schedule.reported` is of a scheduler that was reported because it makes no step."""
_RATE = 0.5
"""The learning rate above which a factor may be the same number by intent, such as 1.0."""


@dataclass
class _Schedule:
    """A scheduler, with what was read of it and its optimizer when the optimizer last made a step, or a group was added."""

    scheduler: weakref.ref[Any]
    site: CallSite | None
    optimizer_steps: int = -1
    stood_at: int = 0
    """The number of the scheduler's steps when the optimizer had made its last one."""
    stood_step: int = 0
    groups: int = 0
    groups_at: int = 0
    groups_step: int = 0
    rates: list[float] = field(default_factory=list)
    reported: tuple[object, ...] = ()
    seen: tuple[int, int] = (0, 0)
    """The steps of the scheduler, and those of the optimizer, when they were compared last."""
    is_over: bool = False
    first: tuple[int | None, list[float]] = (None, [])
    """The scheduler's steps when it was made, and the learning rates of its optimizer."""
    is_factor: bool | None = None
    """Whether its factors have always been the learning rate of its optimizer or less; None once that is reported."""


class Schedulers:
    """Compares the steps of schedulers with those of their optimizers, and the learning rates of groups added later."""

    def __init__(self, context: ProbeContext, passes: Callable[[], float | None]) -> None:
        """`passes` returns how often training has gone through its data; None where that is unknown."""
        self._passes = passes
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._counter = context.counter
        self._all: list[_Schedule] = []
        self._constructed: ByIdentity[Optimizer, bool] = ByIdentity()
        """The optimizers whose construction was seen."""
        self._before_probe: list[weakref.ref[Any]] | None = None

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Note an optimizer that has been constructed."""
        self._constructed.set(optimizer, True)

    def made(self, scheduler: Any) -> None:
        """Note a scheduler that has been constructed."""
        others = [each for each in self._all if (found := each.scheduler()) is not None and found is not scheduler]
        self._all = others[1 - _MAX :]
        made = _Schedule(weakref.ref(scheduler), site_of("scheduler"))
        made.first, made.is_factor = (
            (getattr(scheduler, "last_epoch", None), _rates(scheduler)),
            _factor_is_rate(scheduler),
        )
        self._all.append(made)

    def with_older(self) -> list[Any]:
        """Return the schedulers that are alive, with those from before the probe.

        If an optimizer is older than the probe, its scheduler may be, too: then the first call looks at all objects of Python.
        """
        found = {id(each): each for each in self.living()}
        optimizers = self._models.live_optimizers()
        if self._before_probe is None and any(self._constructed.get(each) is None for each in optimizers):
            self._before_probe = [weakref.ref(each) for each in _all_schedulers() if id(each) not in found]
        return [*found.values(), *(live for each in self._before_probe or () if (live := each()) is not None)]

    def living(self) -> list[Any]:
        """Return the schedulers that are alive, the newest first."""
        return [found for each in reversed(self._all) if (found := each.scheduler()) is not None]

    def report(self) -> None:
        """Look at each scheduler, and emit what it misses."""
        for each in self._all:
            scheduler = each.scheduler()
            optimizer, index = self._registered(scheduler)
            if optimizer is not None and isinstance(steps := getattr(scheduler, "last_epoch", None), int):
                self._follow_groups(each, scheduler, optimizer, index, steps)
                self._follow_steps(each, scheduler, optimizer, index, steps)
                self._follow_start(each, scheduler, optimizer, index, steps)
                if each.is_factor:
                    self._follow_factor(each, scheduler, index, steps)
                if not each.is_over:
                    self._follow_end(each, scheduler, index, steps)

    def _registered(self, scheduler: Any) -> tuple[Optimizer | None, int]:
        """Return the optimizer that a scheduler changes, and its index. Frameworks wrap the one that steps in another."""
        found = getattr(scheduler, "optimizer", None)
        for each in (found, getattr(found, "optimizer", None)):
            if isinstance(each, Optimizer) and (index := self._models.discovery.optimizers.index_of(each)) is not None:
                return each, index
        return None, -1

    def _follow_groups(self, each: _Schedule, scheduler: Any, optimizer: Optimizer, index: int, steps: int) -> None:
        rates, known = (
            [_number(group.get("lr")) for group in optimizer.param_groups],
            getattr(scheduler, "base_lrs", ()),
        )
        if len(rates) != each.groups:
            each.groups, each.groups_at, each.groups_step, each.rates = len(rates), steps, self._counter.steps, rates
            return
        if (
            len(known) >= len(rates)
            or steps - each.groups_at < _STEPS
            or rates[: len(known)] == each.rates[: len(known)]
        ):
            return
        still = tuple(at for at in range(len(known), len(rates)) if rates[at] == each.rates[at])
        if still:
            self._tell(each, scheduler, index, still, rates[still[0]], steps - each.groups_at, each.groups_step, -1)

    def _follow_steps(self, each: _Schedule, scheduler: Any, optimizer: Optimizer, index: int, steps: int) -> None:
        made = self._counter.steps_of(index)
        if made != each.optimizer_steps:
            each.optimizer_steps, each.stood_at, each.stood_step = made, steps, self._counter.steps
        other = self._successor(optimizer) if steps - each.stood_at >= _STEPS else None
        if other is not None:
            rate = _number(other.param_groups[0].get("lr"))
            at = self._models.discovery.register_optimizer(other)
            self._tell(each, scheduler, index, (), rate, steps - each.stood_at, each.stood_step, at)

    def _follow_start(self, each: _Schedule, scheduler: Any, optimizer: Optimizer, index: int, steps: int) -> None:
        """Tell a scheduler that makes no step, if no other one of its optimizer does and nothing else changes the rate."""
        first, rates = each.first
        if steps != first and each.reported == _UNSTEPPED:
            # It has begun: what was said of it does not hold any more.
            self._tell(each, scheduler, index, (), rates[0], 0, 1, -1)
        if steps != first or not rates or type(scheduler).__name__ == "SWALR":
            return
        epochs = int(self._passes() or 0)
        if epochs < _EPOCHS or self._counter.steps_of(index) < _EPOCHS:
            return
        others = [other for other in self._all if self._registered(other.scheduler())[0] is optimizer]
        stood = all(getattr(other.scheduler(), "last_epoch", None) == other.first[0] for other in others)
        if stood and _rates(scheduler) == rates:
            # Of several, one names the others, which are its parts.
            self._tell(others[-1], others[-1].scheduler(), index, (), rates[0], 0, 1, -1, epochs)

    def _follow_factor(self, each: _Schedule, scheduler: Any, index: int, steps: int) -> None:
        first, rate = float(scheduler.base_lrs[0]), _rates(scheduler)[0]
        each.is_factor = rate <= first * first * (1 + 1e-6)
        if each.is_factor and steps >= _FACTORS and self._counter.steps_of(index):
            each.is_factor = None
            self._emit(RateIsFactor(self._clock.at(), self._counter.steps, index, first, rate, steps, each.site))

    def _follow_end(self, each: _Schedule, scheduler: Any, index: int, steps: int) -> None:
        is_cyclic = type(scheduler).__name__ == "CosineAnnealingLR"
        length = scheduled_steps(scheduler) if is_cyclic else steps_to_thousandth(scheduler)
        if length is None:
            return
        if is_cyclic:
            # One step more than needed changes little.
            each.is_over = steps >= length + max(2, _RISES_AGAIN * length)
        else:
            scheduled, made = steps - each.seen[0], self._counter.steps_of(index) - each.seen[1]
            if made < _COMPARED_STEPS:
                return
            each.seen = steps, self._counter.steps_of(index)
            # A loaded scheduler has steps of an earlier run.
            is_through = length <= _FEW_STEPS and steps >= _AS_LONG_AGAIN * length
            each.is_over = is_through and abs(scheduled - made) <= _UNEQUAL * made
        if each.is_over:
            at, name = (self._clock.at(), self._counter.steps), type(scheduler).__name__
            self._emit(ScheduleOver(*at, name, index, length, steps, is_cyclic, each.site))

    def _successor(self, optimizer: Optimizer) -> Optimizer | None:
        """Return an optimizer in use that has the parameters of one that steps no more, and that no scheduler changes."""
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        scheduled = [self._registered(each.scheduler())[0] for each in self._all]
        in_use = [each for group in self._models.optimizers_in_use() for each in group]
        for each in in_use:
            shares = any(id(parameter) in own for group in each.param_groups for parameter in group["params"])
            steps = self._counter.steps_of(self._models.discovery.register_optimizer(each))
            if each is not optimizer and shares and steps and not any(each is other for other in scheduled):
                return each
        return None

    def _tell(
        self,
        each: _Schedule,
        scheduler: Any,
        index: int,
        groups: tuple[int, ...],
        rate: float,
        steps: int,
        since: int,
        stepping: int,
        epochs: int = 0,
    ) -> None:
        new = groups, steps, stepping, epochs > 0
        if each.reported == new:
            return
        each.reported = new
        name = type(scheduler).__name__
        at = self._clock.at(), self._counter.steps
        self._emit(ScheduleMisses(*at, name, index, groups, rate, steps, since, stepping, each.site, epochs))


def _all_schedulers() -> list[Any]:
    kinds = _subclasses(LRScheduler)
    objects: list[Any] = gc.get_objects()
    return [each for each in objects if type(each) in kinds]


def _subclasses(kind: type) -> set[type]:
    found = {kind}
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        found |= _subclasses(each)
    return found


def _rates(scheduler: Any) -> list[float]:
    return [_number(group.get("lr")) for group in getattr(getattr(scheduler, "optimizer", None), "param_groups", ())]


def _factor_is_rate(scheduler: Any) -> bool:
    """Return whether the first factor of a `LambdaLR` is the learning rate of its optimizer."""
    bases, rates = getattr(scheduler, "base_lrs", ()), _rates(scheduler)
    if type(scheduler).__name__ != "LambdaLR" or not bases or len(bases) != len(rates):
        return False
    base = _number(bases[0])
    return 0 < base < _RATE and math.isclose(rates[0], base * base, rel_tol=1e-6)


def _number(value: Any) -> float:
    # A rate on a device is not read.
    is_elsewhere = hasattr(value, "is_cpu") and not value.is_cpu
    return float("nan") if value is None or is_elsewhere else float(value)
